// franz-go and sarama, unmodified: produce with keys, headers and compression; consume in a group of two; commit and go on;
// offsets by time; topics. The last line of the output is what was seen.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

type seen struct {
	First      []string
	Again      []string
	ByTime     int64
	Partitions int
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	client, address, connection, topic := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	run := map[string]func(string, string, string) seen{"franz-go": franz, "sarama": withSarama}[client]
	line, err := json.Marshal(run(address, connection, topic))
	check(err)
	fmt.Println(string(line))
}

func later() int64 {
	at := time.Now().UnixMilli() + 2
	for time.Now().UnixMilli() <= at {
		time.Sleep(time.Millisecond)
	}
	return at
}

func optionsOf(address, connection string) []kgo.Opt {
	auth := plain.Auth{User: "$ConnectionString", Pass: connection}
	return []kgo.Opt{kgo.SeedBrokers(address), kgo.SASL(auth.AsMechanism()), kgo.RecordPartitioner(kgo.ManualPartitioner())}
}

// waitUntilDivided waits until so many members of a group have as many of the topic's two partitions each.
func waitUntilDivided(options []kgo.Opt, group string, members int) {
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	for {
		described, err := kadm.NewClient(client).DescribeGroups(context.Background(), group)
		check(err)
		equal := 0
		for _, member := range described[group].Members {
			assigned, ok := member.Assigned.AsConsumer()
			if ok && len(assigned.Topics) == 1 && len(assigned.Topics[0].Partitions) == 2/members {
				equal++
			}
		}
		if equal == members && len(described[group].Members) == members {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// gather returns the first rows that differ, sorted: those of a partition that changes hands may come twice.
func gather(rows chan string, count int) []string {
	found := map[string]bool{}
	for len(found) < count {
		found[<-rows] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func franz(address, connection, topic string) seen {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	base := optionsOf(address, connection)
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for _, codec := range codecs {
		producer, err := kgo.NewClient(append(base, kgo.ProducerBatchCompression(codec))...)
		check(err)
		header := kgo.RecordHeader{Key: "colour", Value: []byte("red")}
		record := &kgo.Record{Topic: topic, Key: []byte("key"), Value: []byte("body"), Headers: []kgo.RecordHeader{header}}
		check(producer.ProduceSync(ctx, record).FirstErr())
		producer.Close()
	}
	read := func(count, members int) []string {
		reading, stop := context.WithCancel(ctx)
		rows := make(chan string, 100)
		consumers := []*kgo.Client{}
		for range members {
			consumer, err := kgo.NewClient(append(base, kgo.ConsumerGroup("franz"), kgo.ConsumeTopics(topic),
				kgo.DisableAutoCommit(), kgo.HeartbeatInterval(300*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
			check(err)
			consumers = append(consumers, consumer)
			go func() {
				for {
					fetches := consumer.PollFetches(reading)
					if reading.Err() != nil {
						return
					}
					check(fetches.Err())
					if consumer.CommitUncommittedOffsets(reading) != nil {
						continue // the members divide the partitions anew
					}
					fetches.EachRecord(func(one *kgo.Record) {
						header := ""
						for _, found := range one.Headers {
							header += found.Key + "=" + string(found.Value)
						}
						rows <- fmt.Sprintf("%d %d %s %s %s", one.Partition, one.Offset, one.Key, one.Value, header)
					})
				}
			}()
		}
		waitUntilDivided(base, "franz", members)
		found := gather(rows, count)
		stop()
		for _, consumer := range consumers {
			consumer.Close()
		}
		return found
	}
	first := read(len(codecs), 2)
	at := later()
	producer, err := kgo.NewClient(base...)
	check(err)
	defer producer.Close()
	check(producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("later")}).FirstErr())
	again := read(1, 1)
	admin := kadm.NewClient(producer)
	offsets, err := admin.ListOffsetsAfterMilli(ctx, at, topic)
	check(err)
	found, _ := offsets.Lookup(topic, 0)
	made := topic + "-franz"
	_, err = admin.CreateTopic(ctx, 2, 1, nil, made)
	check(err)
	_, err = admin.UpdatePartitions(ctx, 3, made)
	check(err)
	topics, err := admin.ListTopics(ctx, made)
	check(err)
	_, err = admin.DeleteTopic(ctx, made)
	check(err)
	return seen{first, again, found.Offset, len(topics[made].Partitions)}
}

type handler struct {
	rows chan string
}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		header := ""
		for _, found := range message.Headers {
			header += string(found.Key) + "=" + string(found.Value)
		}
		session.MarkMessage(message, "")
		session.Commit()
		h.rows <- fmt.Sprintf("%d %d %s %s %s", message.Partition, message.Offset, message.Key, message.Value, header)
	}
	return nil
}

func withSarama(address, connection, topic string) seen {
	config := func() *sarama.Config {
		config := sarama.NewConfig()
		config.Version = sarama.V3_6_0_0
		config.Net.SASL.Enable, config.Net.SASL.User, config.Net.SASL.Password = true, "$ConnectionString", connection
		config.Producer.Return.Successes = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Partitioner = sarama.NewManualPartitioner
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
		config.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
		config.Consumer.Offsets.AutoCommit.Enable = false
		return config
	}
	send := func(codec sarama.CompressionCodec, message *sarama.ProducerMessage) {
		settings := config()
		settings.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer([]string{address}, settings)
		check(err)
		_, _, err = producer.SendMessage(message)
		check(err)
		check(producer.Close())
	}
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	for _, codec := range codecs {
		header := sarama.RecordHeader{Key: []byte("colour"), Value: []byte("red")}
		send(codec, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("key"),
			Value: sarama.StringEncoder("body"), Headers: []sarama.RecordHeader{header}})
	}
	read := func(count, members int) []string {
		ctx, cancel := context.WithCancel(context.Background())
		rows := make(chan string, 100)
		groups := []sarama.ConsumerGroup{}
		for range members {
			group, err := sarama.NewConsumerGroup([]string{address}, "sarama", config())
			check(err)
			groups = append(groups, group)
			go func() {
				for ctx.Err() == nil {
					_ = group.Consume(ctx, []string{topic}, handler{rows})
				}
			}()
		}
		waitUntilDivided(optionsOf(address, connection), "sarama", members)
		found := gather(rows, count)
		cancel()
		for _, group := range groups {
			check(group.Close())
		}
		return found
	}
	first := read(len(codecs), 2)
	at := later()
	send(sarama.CompressionNone, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("later")})
	again := read(1, 1)
	client, err := sarama.NewClient([]string{address}, config())
	check(err)
	offset, err := client.GetOffset(topic, 0, at)
	check(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	check(err)
	made := topic + "-sarama"
	check(admin.CreateTopic(made, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false))
	check(admin.CreatePartitions(made, 3, nil, false))
	described, err := admin.DescribeTopics([]string{made})
	check(err)
	check(admin.DeleteTopic(made))
	check(admin.Close())
	return seen{first, again, offset, len(described[0].Partitions)}
}
