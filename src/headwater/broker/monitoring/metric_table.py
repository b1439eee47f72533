"""Every metric of a broker, with the MBean of Kafka that has the same number.

The registry refuses names that are not here. The reference page, the checks of the dashboard and of
the alert rules derive from these rows.
"""

from headwater.observe.metrics import MetricRow

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

_REQUESTS = "kafka.network:type=RequestMetrics"
_REPLICAS = "kafka.server:type=ReplicaManager"
_CONTROLLER = "kafka.controller:type=KafkaController"
_SOCKETS = "kafka.server:type=socket-server-metrics"
_CLEANER = "kafka.log:type=LogCleaner"
_CLEANER_MANAGER = "kafka.log:type=LogCleanerManager"
_SYSTEM = "java.lang:type=OperatingSystem"

METRICS = (
    # -- the process
    MetricRow(
        "headwater_build_info", GAUGE, "Always 1; the labels name what runs.",
        ("version", "cluster", "node"), "kafka.server:type=app-info,id=*",
    ),
    MetricRow(
        "headwater_serving", GAUGE, "1 once clients are served, as /readyz says; 0 before.",
        mbean="kafka.server:type=KafkaServer,name=BrokerState",
    ),
    MetricRow(
        "headwater_recovery_seconds", GAUGE, "How long the last start took to recover the logs.",
    ),
    MetricRow(
        "headwater_recovery_scanned_bytes", GAUGE,
        "What the last start read again because it was not known to be on the disk.",
    ),
    MetricRow(
        "headwater_loop_delay_seconds", HISTOGRAM,
        "How much later than planned the event loop ran a timer, ten times a second.",
        mbean=f"{_REQUESTS},name=RequestQueueTimeMs,request=*",
    ),
    MetricRow(
        "headwater_loop_idle_ratio", GAUGE,
        "The share of the last five seconds in which the event loop's thread used no CPU.",
        mbean="kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
    ),
    MetricRow(
        "headwater_gc_pause_seconds", HISTOGRAM, "Runs of the garbage collector.",
        mbean="java.lang:type=GarbageCollector,name=*",
    ),
    MetricRow(
        "process_resident_memory_bytes", GAUGE, "Memory of the broker's process.",
        mbean="java.lang:type=Memory",
    ),
    MetricRow(
        "process_open_fds", GAUGE, "Open files and sockets.",
        mbean=f"{_SYSTEM} OpenFileDescriptorCount",
    ),
    MetricRow(
        "process_max_fds", GAUGE, "The limit of open files and sockets.",
        mbean=f"{_SYSTEM} MaxFileDescriptorCount",
    ),
    MetricRow(
        "process_cpu_seconds_total", COUNTER, "CPU time of all threads.",
        mbean=f"{_SYSTEM} ProcessCpuTime",
    ),
    # -- requests and connections
    MetricRow(
        "headwater_requests_total", COUNTER, "Requests served.",
        ("api",), f"{_REQUESTS},name=RequestsPerSec,request=*",
    ),
    MetricRow(
        "headwater_request_errors_total", COUNTER,
        "Errors in responses, of a request as a whole or of one of its partitions.",
        ("api", "error"), f"{_REQUESTS},name=ErrorsPerSec,request=*,error=*",
    ),
    MetricRow(
        "headwater_request_seconds", HISTOGRAM,
        "From the request to its response; produce requests on the fast path are sampled.",
        ("api",), f"{_REQUESTS},name=TotalTimeMs,request=*",
    ),
    MetricRow(
        "headwater_waiting_requests", GAUGE, "Fetches and produces that wait for data or replicas.",
        mbean="kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=*",
    ),
    MetricRow(
        "headwater_connections", GAUGE, "Open connections of clients and brokers.",
        mbean=f"{_SOCKETS},listener=*,networkProcessor=* connection-count",
    ),
    MetricRow(
        "headwater_connections_rejected_total", COUNTER,
        "Connections closed at once: too many were open, or opened in a second.",
    ),
    MetricRow(
        "headwater_quota_throttle_seconds_total", COUNTER,
        "How long clients were told to wait because of their quotas: the hundred longest.",
        ("quota", "user", "client_id"),
        "kafka.server:type={Produce,Fetch,Request},user=*,client-id=* throttle-time",
    ),
    MetricRow(
        "headwater_clients", GAUGE,
        "Open connections by the client library that they announced; rare ones are summed.",
        ("software", "version"),
        f"{_SOCKETS},clientSoftwareName=*,clientSoftwareVersion=*,listener=*,networkProcessor=*",
    ),
    MetricRow(
        "headwater_network_bytes_total", COUNTER, "Bytes of requests (in) and responses (out).",
        ("direction",), f"{_SOCKETS},listener=*,networkProcessor=* incoming-byte-total",
    ),
    MetricRow(
        "headwater_request_memory_bytes", GAUGE, "Memory that requests and responses hold.",
        mbean="kafka.network:type=SocketServer,name=MemoryPoolUsed",
    ),
    MetricRow(
        "headwater_request_memory_limit_bytes", GAUGE, "The limit of that memory.",
        mbean="kafka.network:type=SocketServer,name=MemoryPoolAvailable",
    ),
    MetricRow(
        "headwater_fetch_sessions", GAUGE, "Cached fetch sessions.",
        mbean="kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
    ),
    MetricRow(
        "headwater_fetch_session_evictions_total", COUNTER, "Sessions dropped to make room.",
        mbean="kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
    ),
    # -- topics
    MetricRow(
        "headwater_topic_bytes_total", COUNTER,
        "Bytes of records that clients wrote (in) and read (out), and that followers read "
        "(to_followers).",
        ("topic", "direction"), "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=*",
    ),
    MetricRow(
        "headwater_replication_bytes_in_total", COUNTER, "Bytes of records copied from leaders.",
        mbean="kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
    ),
    MetricRow(
        "headwater_topic_end_offset", GAUGE,
        "The sum of the end offsets of the partitions led here: it grows by one for each record.",
        ("topic",), "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=*",
    ),
    MetricRow(
        "headwater_log_bytes", GAUGE, "Bytes of the logs of this broker's replicas.",
        ("topic",), "kafka.log:type=Log,name=Size,topic=*,partition=*",
    ),
    MetricRow(
        "headwater_log_segments", GAUGE, "Segments of these logs.",
        ("topic",), "kafka.log:type=Log,name=NumLogSegments,topic=*,partition=*",
    ),
    MetricRow(
        "headwater_partition_log_bytes", GAUGE, "Bytes of one log; only with ?topic=NAME.",
        ("topic", "partition"), "kafka.log:type=Log,name=Size,topic=*,partition=*",
    ),
    MetricRow(
        "headwater_partition_start_offset", GAUGE, "Where one log begins; only with ?topic=NAME.",
        ("topic", "partition"), "kafka.log:type=Log,name=LogStartOffset,topic=*,partition=*",
    ),
    MetricRow(
        "headwater_partition_end_offset", GAUGE, "Where one log ends; only with ?topic=NAME.",
        ("topic", "partition"), "kafka.log:type=Log,name=LogEndOffset,topic=*,partition=*",
    ),
    MetricRow(
        "headwater_topics_left_out", GAUGE,
        "Topics beyond the first thousand: metrics by topic leave them out.",
    ),
    # -- replicas
    MetricRow(
        "headwater_partitions", GAUGE, "Replicas on this broker.",
        mbean=f"{_REPLICAS},name=PartitionCount",
    ),
    MetricRow(
        "headwater_leaders", GAUGE, "Partitions that this broker leads.",
        mbean=f"{_REPLICAS},name=LeaderCount",
    ),
    MetricRow(
        "headwater_under_replicated_partitions", GAUGE,
        "Partitions led here whose replicas are not all in sync.",
        mbean=f"{_REPLICAS},name=UnderReplicatedPartitions",
    ),
    MetricRow(
        "headwater_under_min_isr_partitions", GAUGE,
        "Partitions led here that refuse acks=all: too few replicas are in sync.",
        mbean=f"{_REPLICAS},name=UnderMinIsrPartitionCount",
    ),
    MetricRow(
        "headwater_at_min_isr_partitions", GAUGE,
        "Replicated partitions led here that refuse acks=all if one more replica fails.",
        mbean=f"{_REPLICAS},name=AtMinIsrPartitionCount",
    ),
    MetricRow(
        "headwater_offline_replicas", GAUGE, "Replicas that this broker should serve and cannot.",
        mbean=f"{_REPLICAS},name=OfflineReplicaCount",
    ),
    MetricRow(
        "headwater_isr_shrinks_total", COUNTER, "In-sync sets that lost a replica.",
        mbean=f"{_REPLICAS},name=IsrShrinksPerSec",
    ),
    MetricRow(
        "headwater_isr_expands_total", COUNTER, "In-sync sets that got a replica back.",
        mbean=f"{_REPLICAS},name=IsrExpandsPerSec",
    ),
    # -- the controller; 0 on other brokers
    MetricRow(
        "headwater_active_controller", GAUGE, "1 on the controller; the sum over brokers is 1.",
        mbean=f"{_CONTROLLER},name=ActiveControllerCount",
    ),
    MetricRow(
        "headwater_store_connected", GAUGE, "1 while the session with the metadata store is open.",
        mbean="kafka.server:type=SessionExpireListener,name=SessionState",
    ),
    MetricRow(
        "headwater_live_brokers", GAUGE, "Registered brokers, as the controller sees them.",
        mbean=f"{_CONTROLLER},name=ActiveBrokerCount",
    ),
    MetricRow(
        "headwater_cluster_topics", GAUGE, "Topics of the cluster.",
        mbean=f"{_CONTROLLER},name=GlobalTopicCount",
    ),
    MetricRow(
        "headwater_cluster_partitions", GAUGE, "Partitions of the cluster.",
        mbean=f"{_CONTROLLER},name=GlobalPartitionCount",
    ),
    MetricRow(
        "headwater_offline_partitions", GAUGE, "Partitions without a leader.",
        mbean=f"{_CONTROLLER},name=OfflinePartitionsCount",
    ),
    MetricRow(
        "headwater_preferred_replica_imbalance", GAUGE,
        "Partitions that another replica leads than their first.",
        mbean=f"{_CONTROLLER},name=PreferredReplicaImbalanceCount",
    ),
    MetricRow(
        "headwater_unclean_elections_total", COUNTER,
        "Leaders elected although they were not in sync: records were lost.",
        mbean="kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
    ),
    # -- log dirs and the log cleaner
    MetricRow(
        "headwater_failed_log_dirs", GAUGE, "Log dirs that are offline until a restart.",
        mbean="kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
    ),
    MetricRow("headwater_full_log_dirs", GAUGE, "Log dirs that refuse writes: no space is left."),
    MetricRow(
        "headwater_log_dir_free_bytes", GAUGE, "Space that the broker can use in a log dir.",
        ("dir",),
    ),
    MetricRow(
        "headwater_log_dir_size_bytes", GAUGE, "The size of the file system of a log dir.", ("dir",)
    ),
    MetricRow(
        "headwater_scrub_damaged_segments_total", COUNTER,
        "Segments in which the scrubber found damage (log.scrub.bytes.per.second).",
    ),
    MetricRow("headwater_cleaner_passes_total", COUNTER, "Passes of compaction over a log."),
    MetricRow(
        "headwater_cleaner_read_bytes_total", COUNTER, "Bytes that these passes read.",
    ),
    MetricRow(
        "headwater_cleaner_kept_bytes_total", COUNTER, "Bytes that these passes kept.",
        mbean=f"{_CLEANER},name=cleaner-recopy-percent",
    ),
    MetricRow(
        "headwater_cleaner_last_pass_seconds", GAUGE, "How long the last pass took.",
        mbean=f"{_CLEANER},name=max-clean-time-secs",
    ),
    MetricRow(
        "headwater_cleaner_worker_deaths_total", COUNTER,
        "Cleaning workers that ended in the middle of a pass.",
        mbean=f"{_CLEANER},name=DeadThreadCount",
    ),
    MetricRow(
        "headwater_cleaner_uncleanable_partitions", GAUGE,
        "Logs set aside until the broker restarts.",
        mbean=f"{_CLEANER_MANAGER},name=uncleanable-partitions-count,logDirectory=*",
    ),
    MetricRow(
        "headwater_cleaner_max_dirty_ratio", GAUGE,
        "Of the dirtiest log when logs were last checked.",
        mbean=f"{_CLEANER_MANAGER},name=max-dirty-percent",
    ),
    MetricRow(
        "headwater_cleaner_max_delay_seconds", GAUGE,
        "By how much the oldest dirty record is older than max.compaction.lag.ms.",
        mbean=f"{_CLEANER},name=max-compaction-delay-secs",
    ),
    MetricRow(
        "headwater_cleaner_idle_seconds", GAUGE,
        "Since the cleaner last looked for dirty logs; 0 if it is off.",
        mbean=f"{_CLEANER_MANAGER},name=time-since-last-run-ms",
    ),
    # -- consumer groups that this broker coordinates
    MetricRow(
        "headwater_groups", GAUGE, "Groups by state.",
        ("state",), "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
    ),
    MetricRow(
        "headwater_group_lag", GAUGE,
        "Records that a group has yet to read, over the partitions of a topic.",
        ("group", "topic"),
        "kafka.consumer:type=consumer-fetch-manager-metrics,client-id=*,topic=*,partition=* "
        "records-lag",
    ),
    MetricRow(
        "headwater_group_lead", GAUGE,
        "How far a group is ahead of the log's start, in the partition where it is least.",
        ("group", "topic"),
        "kafka.consumer:type=consumer-fetch-manager-metrics,client-id=*,topic=*,partition=* "
        "records-lead",
    ),
    MetricRow(
        "headwater_groups_left_out", GAUGE,
        "Groups beyond the thousand with the largest lag: metrics by group leave them out.",
    ),
    MetricRow(
        "headwater_group_rebalances_total", COUNTER, "Rebalances of groups.",
        ("group", "reason"),
        "kafka.server:type=group-coordinator-metrics group-completed-rebalance-count",
    ),
)  # fmt: skip
