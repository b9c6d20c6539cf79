"""Kafka's requests and responses: which fields each version has, as the codec in `messages` reads them.

A message begins with its name, its number, the versions that are known, and the first flexible version, in which
lengths are variable and tagged fields are possible (https://cwiki.apache.org/confluence/x/OhMyBw). A line below is a
field: its name, its type, the versions it is in if not in all, `?` and the versions in which it may be null, and the
value it has if a response does not set it. `[]` is an array of what is indented below it, and `{}` one of it or null.
Tagged fields are left out, as none is needed.
"""

MESSAGES = """
Produce 0 3-13 9
 request
  transactional_id string ?
  acks int16
  timeout_ms int32
  topic_data []
    name string 3-12
    topic_id uuid 13+
    partition_data []
      index int32
      records records ?
 response
  responses []
    name string 3-12
    topic_id uuid 13+
    partition_responses []
      index int32
      error_code int16
      base_offset int64
      log_append_time_ms int64 = -1
      log_start_offset int64 5+ = -1
      record_errors [] 8+
        batch_index int32 8+
        batch_index_error_message string 8+ ?
      error_message string 8+ ?
  throttle_time_ms int32
Fetch 1 4-18 12
 request
  replica_id int32 4-14 = -1
  max_wait_ms int32
  min_bytes int32
  max_bytes int32 = 2147483647
  isolation_level int8
  session_id int32 7+
  session_epoch int32 7+ = -1
  topics []
    topic string 4-12
    topic_id uuid 13+
    partitions []
      partition int32
      current_leader_epoch int32 9+ = -1
      fetch_offset int64
      last_fetched_epoch int32 12+ = -1
      log_start_offset int64 5+ = -1
      partition_max_bytes int32
  forgotten_topics_data [] 7+
    topic string 7-12
    topic_id uuid 13+
    partitions [int32] 7+
  rack_id string 11+
 response
  throttle_time_ms int32
  error_code int16 7+
  session_id int32 7+
  responses []
    topic string 4-12
    topic_id uuid 13+
    partitions []
      partition_index int32
      error_code int16
      high_watermark int64
      last_stable_offset int64 = -1
      log_start_offset int64 5+ = -1
      aborted_transactions [] ?
        producer_id int64
        first_offset int64
      preferred_read_replica int32 11+ = -1
      records records ?
ListOffsets 2 1-11 6
 request
  replica_id int32
  isolation_level int8 2+
  topics []
    name string
    partitions []
      partition_index int32
      current_leader_epoch int32 4+ = -1
      timestamp int64
  timeout_ms int32 10+
 response
  throttle_time_ms int32 2+
  topics []
    name string
    partitions []
      partition_index int32
      error_code int16
      timestamp int64 = -1
      offset int64 = -1
      leader_epoch int32 4+ = -1
Metadata 3 0-13 9
 request
  topics [] ?1+
    topic_id uuid 10+
    name string ?10+
  allow_auto_topic_creation bool 4+ = True
  include_cluster_authorized_operations bool 8-10
  include_topic_authorized_operations bool 8+
 response
  throttle_time_ms int32 3+
  brokers []
    node_id int32
    host string
    port int32
    rack string 1+ ?
  cluster_id string 2+ ?
  controller_id int32 1+ = -1
  topics []
    error_code int16
    name string ?12+
    topic_id uuid 10+
    is_internal bool 1+
    partitions []
      error_code int16
      partition_index int32
      leader_id int32
      leader_epoch int32 7+ = -1
      replica_nodes [int32]
      isr_nodes [int32]
      offline_replicas [int32] 5+
    topic_authorized_operations int32 8+ = -2147483648
  cluster_authorized_operations int32 8-10 = -2147483648
  error_code int16 13+
OffsetCommit 8 2-10 8
 request
  group_id string
  generation_id_or_member_epoch int32 = -1
  member_id string
  retention_time_ms int64 2-4 = -1
  group_instance_id string 7+ ?
  topics []
    name string 2-9
    topic_id uuid 10+
    partitions []
      partition_index int32
      committed_offset int64
      committed_leader_epoch int32 6+ = -1
      committed_metadata string ?
 response
  throttle_time_ms int32 3+
  topics []
    name string 2-9
    topic_id uuid 10+
    partitions []
      partition_index int32
      error_code int16
OffsetFetch 9 1-10 6
 request
  group_id string 1-7
  topics [] 1-7 ?2+
    name string 1-7
    partition_indexes [int32] 1-7
  groups [] 8+
    group_id string 8+
    member_id string 9+ ?
    member_epoch int32 9+ = -1
    topics [] 8+ ?
      name string 8-9
      topic_id uuid 10+
      partition_indexes [int32] 8+
  require_stable bool 7+
 response
  throttle_time_ms int32 3+
  topics [] 1-7
    name string 1-7
    partitions [] 1-7
      partition_index int32 1-7
      committed_offset int64 1-7
      committed_leader_epoch int32 5-7 = -1
      metadata string 1-7 ?
      error_code int16 1-7
  error_code int16 2-7
  groups [] 8+
    group_id string 8+
    topics [] 8+
      name string 8-9
      topic_id uuid 10+
      partitions [] 8+
        partition_index int32 8+
        committed_offset int64 8+
        committed_leader_epoch int32 8+ = -1
        metadata string 8+ ?
        error_code int16 8+
    error_code int16 8+
FindCoordinator 10 0-6 3
 request
  key string 0-3
  key_type int8 1+
  coordinator_keys [string] 4+
 response
  throttle_time_ms int32 1+
  error_code int16 0-3
  error_message string 1-3 ?
  node_id int32 0-3
  host string 0-3
  port int32 0-3
  coordinators [] 4+
    key string 4+
    node_id int32 4+
    host string 4+
    port int32 4+
    error_code int16 4+
    error_message string 4+ ?
JoinGroup 11 0-9 6
 request
  group_id string
  session_timeout_ms int32
  rebalance_timeout_ms int32 1+ = -1
  member_id string
  group_instance_id string 5+ ?
  protocol_type string
  protocols []
    name string
    metadata bytes
  reason string 8+ ?
 response
  throttle_time_ms int32 2+
  error_code int16
  generation_id int32 = -1
  protocol_type string 7+ ?
  protocol_name string ?7+
  leader string
  skip_assignment bool 9+
  member_id string
  members []
    member_id string
    group_instance_id string 5+ ?
    metadata bytes
Heartbeat 12 0-4 4
 request
  group_id string
  generation_id int32
  member_id string
  group_instance_id string 3+ ?
 response
  throttle_time_ms int32 1+
  error_code int16
LeaveGroup 13 0-5 4
 request
  group_id string
  member_id string 0-2
  members [] 3+
    member_id string 3+
    group_instance_id string 3+ ?
    reason string 5+ ?
 response
  throttle_time_ms int32 1+
  error_code int16
  members [] 3+
    member_id string 3+
    group_instance_id string 3+ ?
    error_code int16 3+
SyncGroup 14 0-5 4
 request
  group_id string
  generation_id int32
  member_id string
  group_instance_id string 3+ ?
  protocol_type string 5+ ?
  protocol_name string 5+ ?
  assignments []
    member_id string
    assignment bytes
 response
  throttle_time_ms int32 1+
  error_code int16
  protocol_type string 5+ ?
  protocol_name string 5+ ?
  assignment bytes
DescribeGroups 15 0-6 5
 request
  groups [string]
  include_authorized_operations bool 3+
 response
  throttle_time_ms int32 1+
  groups []
    error_code int16
    error_message string 6+ ?
    group_id string
    group_state string
    protocol_type string
    protocol_data string
    members []
      member_id string
      group_instance_id string 4+ ?
      client_id string
      client_host string
      member_metadata bytes
      member_assignment bytes
    authorized_operations int32 3+ = -2147483648
ListGroups 16 0-5 3
 request
  states_filter [string] 4+
  types_filter [string] 5+
 response
  throttle_time_ms int32 1+
  error_code int16
  groups []
    group_id string
    protocol_type string
    group_state string 4+
    group_type string 5+
SaslHandshake 17 0-1 none
 request
  mechanism string
 response
  error_code int16
  mechanisms [string]
ApiVersions 18 0-4 3
 request
  client_software_name string 3+
  client_software_version string 3+
 response
  error_code int16
  api_keys []
    api_key int16
    min_version int16
    max_version int16
  throttle_time_ms int32 1+
CreateTopics 19 2-7 5
 request
  topics []
    name string
    num_partitions int32
    replication_factor int16
    assignments []
      partition_index int32
      broker_ids [int32]
    configs []
      name string
      value string ?
  timeout_ms int32 = 60000
  validate_only bool
 response
  throttle_time_ms int32
  topics []
    name string
    topic_id uuid 7+
    error_code int16
    error_message string ?
    num_partitions int32 5+ = -1
    replication_factor int16 5+ = -1
    configs [] 5+ ?
      name string 5+
      value string 5+ ?
      read_only bool 5+
      config_source int8 5+ = -1
      is_sensitive bool 5+
DeleteTopics 20 1-6 4
 request
  topic_names [string] 1-5
  topics [] 6+
    name string 6+ ?
    topic_id uuid 6+
  timeout_ms int32
 response
  throttle_time_ms int32
  responses []
    name string ?6+
    topic_id uuid 6+
    error_code int16
    error_message string 5+ ?
DeleteRecords 21 0-2 2
 request
  topics []
    name string
    partitions []
      partition_index int32
      offset int64
  timeout_ms int32
 response
  throttle_time_ms int32
  topics []
    name string
    partitions []
      partition_index int32
      low_watermark int64
      error_code int16
InitProducerId 22 0-6 2
 request
  transactional_id string ?
  transaction_timeout_ms int32
  producer_id int64 3+ = -1
  producer_epoch int16 3+ = -1
  enable2_pc bool 6+
  keep_prepared_txn bool 6+
 response
  throttle_time_ms int32
  error_code int16
  producer_id int64 = -1
  producer_epoch int16
  ongoing_txn_producer_id int64 6+ = -1
  ongoing_txn_producer_epoch int16 6+ = -1
OffsetForLeaderEpoch 23 2-4 4
 request
  replica_id int32 3+ = -2
  topics []
    topic string
    partitions []
      partition int32
      current_leader_epoch int32 = -1
      leader_epoch int32
 response
  throttle_time_ms int32
  topics []
    topic string
    partitions []
      error_code int16
      partition int32
      leader_epoch int32 = -1
      end_offset int64 = -1
DescribeConfigs 32 1-4 4
 request
  resources []
    resource_type int8
    resource_name string
    configuration_keys [string] ?
  include_synonyms bool
  include_documentation bool 3+
 response
  throttle_time_ms int32
  results []
    error_code int16
    error_message string ?
    resource_type int8
    resource_name string
    configs []
      name string
      value string ?
      read_only bool
      config_source int8 = -1
      is_sensitive bool
      synonyms []
        name string
        value string ?
        source int8
      config_type int8 3+
      documentation string 3+ ?
AlterConfigs 33 0-2 2
 request
  resources []
    resource_type int8
    resource_name string
    configs []
      name string
      value string ?
  validate_only bool
 response
  throttle_time_ms int32
  responses []
    error_code int16
    error_message string ?
    resource_type int8
    resource_name string
SaslAuthenticate 36 0-2 2
 request
  auth_bytes bytes
 response
  error_code int16
  error_message string ?
  auth_bytes bytes
  session_lifetime_ms int64 1+
CreatePartitions 37 0-3 2
 request
  topics []
    name string
    count int32
    assignments [] ?
      broker_ids [int32]
  timeout_ms int32
  validate_only bool
 response
  throttle_time_ms int32
  results []
    name string
    error_code int16
    error_message string ?
DeleteGroups 42 0-2 2
 request
  groups_names [string]
 response
  throttle_time_ms int32
  results []
    group_id string
    error_code int16
IncrementalAlterConfigs 44 0-1 1
 request
  resources []
    resource_type int8
    resource_name string
    configs []
      name string
      config_operation int8
      value string ?
  validate_only bool
 response
  throttle_time_ms int32
  responses []
    error_code int16
    error_message string ?
    resource_type int8
    resource_name string
OffsetDelete 47 0-0 none
 request
  group_id string
  topics []
    name string
    partitions []
      partition_index int32
 response
  error_code int16
  throttle_time_ms int32
  topics []
    name string
    partitions []
      partition_index int32
      error_code int16
DescribeCluster 60 0-2 0
 request
  include_cluster_authorized_operations bool
  endpoint_type int8 1+ = 1
  include_fenced_brokers bool 2+
 response
  throttle_time_ms int32
  error_code int16
  error_message string ?
  endpoint_type int8 1+ = 1
  cluster_id string
  controller_id int32 = -1
  brokers []
    broker_id int32
    host string
    port int32
    rack string ?
    is_fenced bool 2+
  cluster_authorized_operations int32 = -2147483648
DescribeProducers 61 0-0 0
 request
  topics []
    name string
    partition_indexes [int32]
 response
  throttle_time_ms int32
  topics []
    name string
    partitions []
      partition_index int32
      error_code int16
      error_message string ?
      active_producers []
        producer_id int64
        producer_epoch int32
        last_sequence int32 = -1
        last_timestamp int64 = -1
        coordinator_epoch int32
        current_txn_start_offset int64 = -1
ConsumerGroupHeartbeat 68 0-1 0
 request
  group_id string
  member_id string
  member_epoch int32
  instance_id string ?
  rack_id string ?
  rebalance_timeout_ms int32 = -1
  subscribed_topic_names [string] ?
  subscribed_topic_regex string 1+ ?
  server_assignor string ?
  topic_partitions [] ?
    topic_id uuid
    partitions [int32]
 response
  throttle_time_ms int32
  error_code int16
  error_message string ?
  member_id string ?
  member_epoch int32
  heartbeat_interval_ms int32
  assignment {} ?
    topic_partitions []
      topic_id uuid
      partitions [int32]
"""
