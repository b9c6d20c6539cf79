// Does with azeventhubs, unmodified, what the lines of its standard input ask for. Each line is a JSON object with the
// operation as "do"; the answer is a line with its result, or with the client's error as "error".
// tests/server/compiled_client.py has the operations; the driver in Java has the same.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
)

type asked struct {
	Do         string          `json:"do"`
	Name       string          `json:"name"`
	Producer   string          `json:"producer"`
	Connection string          `json:"connection"`
	Endpoint   string          `json:"endpoint"`
	Hub        string          `json:"hub"`
	Group      string          `json:"group"`
	Partition  *string         `json:"partition"`
	Key        *string         `json:"key"`
	Bodies     []string        `json:"bodies"`
	Size       int             `json:"size"`
	Position   string          `json:"position"`
	Value      json.RawMessage `json:"value"`
	Inclusive  bool            `json:"inclusive"`
	Level      *int64          `json:"level"`
	Count      int             `json:"count"`
	WithinS    float64         `json:"within_s"`
	Retries    int32           `json:"retries"`
	Store      string          `json:"store"`
}

type answer = map[string]any

var (
	background = context.Background()
	producers  = map[string]*azeventhubs.ProducerClient{}
	readers    = map[string]*reader{}
	workers    = map[string]*worker{}
	stores     = map[string]*store{}
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var a asked
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			panic(err)
		}
		result, err := carryOut(&a)
		if err != nil {
			result = answer{"error": describe(err)}
		}
		if err := out.Encode(result); err != nil {
			panic(err)
		}
	}
}

func carryOut(a *asked) (answer, error) {
	switch a.Do {
	case "properties":
		return withProducer(a, func(client *azeventhubs.ProducerClient) (answer, error) {
			found, err := client.GetEventHubProperties(background, nil)
			return answer{"name": found.Name, "partitions": found.PartitionIDs, "created_ms": found.CreatedOn.UnixMilli()}, err
		})
	case "partition":
		return withProducer(a, func(client *azeventhubs.ProducerClient) (answer, error) {
			found, err := client.GetPartitionProperties(background, *a.Partition, nil)
			return answer{"first": found.BeginningSequenceNumber, "last": found.LastEnqueuedSequenceNumber,
				"offset": found.LastEnqueuedOffset, "empty": found.IsEmpty, "last_ms": found.LastEnqueuedOn.UnixMilli()}, err
		})
	case "publish":
		events := []*azeventhubs.EventData{}
		for _, body := range a.Bodies {
			events = append(events, &azeventhubs.EventData{Body: []byte(body)})
		}
		return withProducer(a, func(client *azeventhubs.ProducerClient) (answer, error) { return answer{}, publish(client, a, events) })
	case "publish_types":
		return withProducer(a, func(client *azeventhubs.ProducerClient) (answer, error) {
			return answer{}, publish(client, a, []*azeventhubs.EventData{everyType()})
		})
	case "publish_large":
		return withProducer(a, func(client *azeventhubs.ProducerClient) (answer, error) { return publishLarge(client, a) })
	case "read":
		if readers[a.Name] == nil {
			opened, err := newReader(a)
			if err != nil {
				return nil, err
			}
			readers[a.Name] = opened
		}
		return readers[a.Name].read(a), nil
	case "stop_reading":
		readers[a.Name].close()
		delete(readers, a.Name)
		return answer{}, nil
	case "process":
		started, err := newWorker(a)
		workers[a.Name] = started
		return answer{}, err
	case "processed":
		return workers[a.Name].state(), nil
	case "stop_processing":
		workers[a.Name].stop()
		delete(workers, a.Name)
		return answer{}, nil
	}
	return nil, fmt.Errorf("no operation %q", a.Do)
}

// describe says what an error is to a program that handles it: the client's code, and the condition below it.
func describe(err error) answer {
	said := answer{"kind": fmt.Sprintf("%T", err), "text": err.Error()}
	var client *azeventhubs.Error
	if errors.As(err, &client) {
		said["code"] = client.Code
	}
	var wire *amqp.Error
	var link *amqp.LinkError
	if errors.As(err, &link) && link.RemoteErr != nil {
		wire = link.RemoteErr
	}
	if wire != nil || errors.As(err, &wire) {
		said["condition"] = wire.Condition
	}
	return said
}

func retries(a *asked) azeventhubs.RetryOptions {
	return azeventhubs.RetryOptions{MaxRetries: cmp.Or(a.Retries, -1), RetryDelay: 100 * time.Millisecond, MaxRetryDelay: time.Second}
}

// --- publishing

func newProducer(a *asked) (*azeventhubs.ProducerClient, error) {
	options := &azeventhubs.ProducerClientOptions{RetryOptions: retries(a), CustomEndpoint: a.Endpoint}
	return azeventhubs.NewProducerClientFromConnectionString(a.Connection, a.Hub, options)
}

// withProducer uses the producer of the name "producer", which stays open, or one for this operation only.
func withProducer(a *asked, action func(*azeventhubs.ProducerClient) (answer, error)) (answer, error) {
	client := producers[a.Producer]
	if client == nil {
		var err error
		if client, err = newProducer(a); err != nil {
			return nil, err
		}
		if a.Producer == "" {
			defer client.Close(background)
		} else {
			producers[a.Producer] = client
		}
	}
	return action(client)
}

func publish(client *azeventhubs.ProducerClient, a *asked, events []*azeventhubs.EventData) error {
	batch, err := newBatch(client, a)
	if err != nil {
		return err
	}
	for _, event := range events {
		if err := batch.AddEventData(event, nil); err != nil {
			return err
		}
	}
	return client.SendEventDataBatch(background, batch, nil)
}

func newBatch(client *azeventhubs.ProducerClient, a *asked) (*azeventhubs.EventDataBatch, error) {
	return client.NewEventDataBatch(background, &azeventhubs.EventDataBatchOptions{PartitionID: a.Partition, PartitionKey: a.Key})
}

// everyType returns an event with a property of each type that the client can send.
func everyType() *azeventhubs.EventData {
	return &azeventhubs.EventData{
		Body:          []byte{0, 0xff, 'x'},
		MessageID:     to.Ptr("m-1"),
		CorrelationID: "c-1",
		ContentType:   to.Ptr("application/json"),
		Properties: map[string]any{
			"text": "é", "bool": true, "null": nil, "binary": []byte{0, 0xff},
			"byte": int8(-7), "short": int16(-700), "int": int32(-70_000), "long": int64(-7_000_000_000),
			"ubyte": uint8(200), "ushort": uint16(60_000), "uint": uint32(4_000_000_000), "ulong": uint64(18_000_000_000_000_000_000),
			"float": float32(1.5), "double": -2.25, "timestamp": time.UnixMilli(1_700_000_000_123),
			"uuid":   amqp.UUID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff},
			"symbol": amqp.Symbol("symbol"),
		},
	}
}

// publishLarge sends a batch that is as full as the client allows, and tries an event that is larger than a batch.
func publishLarge(client *azeventhubs.ProducerClient, a *asked) (answer, error) {
	batch, err := newBatch(client, a)
	if err != nil {
		return nil, err
	}
	event := &azeventhubs.EventData{Body: make([]byte, a.Size)}
	for err = batch.AddEventData(event, nil); err == nil; err = batch.AddEventData(event, nil) {
	}
	if !errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
		return nil, err
	}
	full := answer{"events": batch.NumEvents(), "bytes": batch.NumBytes(), "refusal": describe(err)}
	return full, client.SendEventDataBatch(background, batch, nil)
}

// --- receiving

type reader struct {
	client    *azeventhubs.ConsumerClient
	partition *azeventhubs.PartitionClient
	cancel    context.CancelFunc
	come      chan any
}

func position(a *asked) (azeventhubs.StartPosition, error) {
	start := azeventhubs.StartPosition{Inclusive: a.Inclusive}
	var err error
	switch a.Position {
	case "latest":
		start.Latest = to.Ptr(true)
	case "offset":
		err = json.Unmarshal(a.Value, &start.Offset)
	case "sequence":
		err = json.Unmarshal(a.Value, &start.SequenceNumber)
	case "time":
		var ms int64
		err = json.Unmarshal(a.Value, &ms)
		start.EnqueuedTime = to.Ptr(time.UnixMilli(ms))
	default:
		start.Earliest = to.Ptr(true)
	}
	return start, err
}

func newConsumer(a *asked) (*azeventhubs.ConsumerClient, error) {
	group := a.Group
	if group == "" {
		group = azeventhubs.DefaultConsumerGroup
	}
	options := &azeventhubs.ConsumerClientOptions{RetryOptions: retries(a), CustomEndpoint: a.Endpoint}
	return azeventhubs.NewConsumerClientFromConnectionString(a.Connection, a.Hub, group, options)
}

// newReader opens a link of a reader; what comes on it waits in a channel.
func newReader(a *asked) (*reader, error) {
	client, err := newConsumer(a)
	if err != nil {
		return nil, err
	}
	start, err := position(a)
	if err != nil {
		return nil, err
	}
	partition, err := client.NewPartitionClient(*a.Partition, &azeventhubs.PartitionClientOptions{StartPosition: start, OwnerLevel: a.Level})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(background)
	opened := &reader{client, partition, cancel, make(chan any, 100_000)}
	go func() {
		for ctx.Err() == nil {
			// Events wait for the end of the call, so a call that waits for more holds back those that are there.
			brief, done := context.WithTimeout(ctx, 200*time.Millisecond)
			events, err := partition.ReceiveEvents(brief, 100, nil)
			done()
			for _, event := range events {
				opened.come <- seen(event)
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				opened.come <- err
				return
			}
		}
	}()
	return opened, nil
}

// read waits for so many events, or for an error.
func (r *reader) read(a *asked) answer {
	events := []any{}
	until := time.After(time.Duration(a.WithinS * float64(time.Second)))
	for len(events) < a.Count {
		select {
		case next := <-r.come:
			if err, failed := next.(error); failed {
				return answer{"events": events, "error": describe(err)}
			}
			events = append(events, next)
		case <-until:
			return answer{"events": events}
		}
	}
	return answer{"events": events}
}

func (r *reader) close() {
	r.cancel()
	r.partition.Close(background)
	r.client.Close(background)
}

func seen(event *azeventhubs.ReceivedEventData) answer {
	properties := map[string][]string{}
	for name, value := range event.Properties {
		properties[name] = typed(value)
	}
	body := ""
	if len(event.Body) <= 100 {
		body = string(event.Body)
	}
	return answer{
		"body": body, "size": len(event.Body), "sequence_number": event.SequenceNumber, "offset": event.Offset,
		"enqueued_ms": event.EnqueuedTime.UnixMilli(), "key": event.PartitionKey, "message_id": event.MessageID,
		"correlation_id": event.CorrelationID, "content_type": event.ContentType, "properties": properties,
	}
}

func typed(value any) []string {
	switch value := value.(type) {
	case time.Time:
		return []string{"time.Time", strconv.FormatInt(value.UnixMilli(), 10)}
	case []byte:
		return []string{"[]uint8", hex.EncodeToString(value)}
	case nil:
		return []string{"nil", ""}
	}
	return []string{fmt.Sprintf("%T", value), fmt.Sprint(value)}
}

// --- processors

type worker struct {
	lock   sync.Mutex
	owned  map[string]bool
	bodies []string
	errors []answer
	client *azeventhubs.ConsumerClient
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newWorker(a *asked) (*worker, error) {
	client, err := newConsumer(a)
	if err != nil {
		return nil, err
	}
	if stores[a.Store] == nil {
		stores[a.Store] = &store{ownerships: map[string]azeventhubs.Ownership{}, checkpoints: map[string]azeventhubs.Checkpoint{}}
	}
	processor, err := azeventhubs.NewProcessor(client, stores[a.Store], &azeventhubs.ProcessorOptions{
		UpdateInterval:              500 * time.Millisecond,
		PartitionExpirationDuration: 3 * time.Second,
		StartPositions:              azeventhubs.StartPositions{Default: azeventhubs.StartPosition{Earliest: to.Ptr(true)}},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(background)
	w := &worker{owned: map[string]bool{}, client: client, cancel: cancel}
	// A call that ends too soon has no time to connect again.
	wait := cmp.Or(time.Duration(a.WithinS*float64(time.Second)), 200*time.Millisecond)
	w.done.Add(1)
	go func() {
		defer w.done.Done()
		if err := processor.Run(ctx); err != nil {
			w.note(err)
		}
	}()
	go func() {
		for partition := processor.NextPartitionClient(ctx); partition != nil; partition = processor.NextPartitionClient(ctx) {
			w.done.Add(1)
			go w.process(ctx, partition, wait)
		}
	}()
	return w, nil
}

func (w *worker) note(err error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.errors = append(w.errors, describe(err))
}

func (w *worker) own(partition string, owned bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if owned {
		w.owned[partition] = true
	} else {
		delete(w.owned, partition)
	}
}

func (w *worker) process(ctx context.Context, partition *azeventhubs.ProcessorPartitionClient, wait time.Duration) {
	defer w.done.Done()
	defer partition.Close(background)
	w.own(partition.PartitionID(), true)
	defer w.own(partition.PartitionID(), false)
	for ctx.Err() == nil {
		brief, done := context.WithTimeout(ctx, wait)
		events, err := partition.ReceiveEvents(brief, 100, nil)
		done()
		for _, event := range events {
			w.lock.Lock()
			w.bodies = append(w.bodies, string(event.Body))
			w.lock.Unlock()
			if err := partition.UpdateCheckpoint(background, event, nil); err != nil {
				w.note(err)
			}
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			w.note(err)
			return
		}
	}
}

func (w *worker) state() answer {
	w.lock.Lock()
	defer w.lock.Unlock()
	partitions := []string{}
	for partition := range w.owned {
		partitions = append(partitions, partition)
	}
	sort.Strings(partitions)
	return answer{"partitions": partitions, "bodies": append([]string{}, w.bodies...), "errors": append([]answer{}, w.errors...)}
}

func (w *worker) stop() {
	w.cancel()
	w.done.Wait()
	w.client.Close(background)
}

// store is a checkpoint store that the processors of this process share.
type store struct {
	lock        sync.Mutex
	ownerships  map[string]azeventhubs.Ownership
	checkpoints map[string]azeventhubs.Checkpoint
	claims      int
}

func (s *store) ClaimOwnership(_ context.Context, claims []azeventhubs.Ownership, _ *azeventhubs.ClaimOwnershipOptions) ([]azeventhubs.Ownership, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	claimed := []azeventhubs.Ownership{}
	for _, claim := range claims {
		held, exists := s.ownerships[claim.PartitionID]
		if exists && (claim.ETag == nil || *held.ETag != *claim.ETag) {
			continue
		}
		s.claims++
		claim.ETag = to.Ptr(azcore.ETag(strconv.Itoa(s.claims)))
		claim.LastModifiedTime = time.Now()
		s.ownerships[claim.PartitionID] = claim
		claimed = append(claimed, claim)
	}
	return claimed, nil
}

func (s *store) ListOwnership(context.Context, string, string, string, *azeventhubs.ListOwnershipOptions) ([]azeventhubs.Ownership, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	found := []azeventhubs.Ownership{}
	for _, one := range s.ownerships {
		found = append(found, one)
	}
	return found, nil
}

func (s *store) ListCheckpoints(context.Context, string, string, string, *azeventhubs.ListCheckpointsOptions) ([]azeventhubs.Checkpoint, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	found := []azeventhubs.Checkpoint{}
	for _, one := range s.checkpoints {
		found = append(found, one)
	}
	return found, nil
}

func (s *store) SetCheckpoint(_ context.Context, checkpoint azeventhubs.Checkpoint, _ *azeventhubs.SetCheckpointOptions) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.checkpoints[checkpoint.PartitionID] = checkpoint
	return nil
}
