"""The errors of the JetStream API: their HTTP-like codes, their own codes and their words.

Clients tell errors apart by `err_code` and some by the words, so all three are nats-server's, word for word.
A constant is an error with fixed words; a lower-case name is a function of what its words leave open, such as
a reason or a number. They stand in the order of their codes; none goes, because codes are never used again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ApiError:
    """Why a request or a publish is refused."""

    code: int
    err_code: int
    description: str

    def document(self) -> dict[str, Any]:
        """What stands under `error` in an answer."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


class ApiFailure(Exception):  # noqa: N818 - the error is what it carries
    """Raised where a request is read or checked; the answer to the client is its `error`."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.description)
        self.error = error


def _with_text(code: int, err_code: int, words: str) -> Callable[[str], ApiError]:
    # Only the first place is filled, and what fills it is not looked at again: it may have braces itself.
    before, _, after = words.partition("{}")
    return lambda text: ApiError(code, err_code, f"{before}{text}{after}")


def _with_number(code: int, err_code: int, words: str) -> Callable[[int], ApiError]:
    before, _, after = words.partition("{}")
    return lambda number: ApiError(code, err_code, f"{before}{number}{after}")


def _with_two_texts(code: int, err_code: int, words: str) -> Callable[[str, str], ApiError]:
    before, between, after = words.split("{}")
    return lambda first, second: ApiError(code, err_code, f"{before}{first}{between}{second}{after}")


ACCOUNT_RESOURCES_EXCEEDED = ApiError(400, 10002, "resource limits exceeded for account")
BAD_REQUEST = ApiError(400, 10003, "bad request")
CLUSTER_INCOMPLETE = ApiError(503, 10004, "incomplete results")
cluster_no_peers = _with_text(400, 10005, "{}")
CLUSTER_NOT_ACTIVE = ApiError(500, 10006, "JetStream not in clustered mode")
CLUSTER_NOT_ASSIGNED = ApiError(500, 10007, "JetStream cluster not assigned to this server")
CLUSTER_NOT_AVAILABLE = ApiError(503, 10008, "JetStream system temporarily unavailable")
CLUSTER_NOT_LEADER = ApiError(500, 10009, "JetStream cluster can not handle request")
CLUSTER_REQUIRED = ApiError(503, 10010, "JetStream clustering support required")
CLUSTER_TAGS = ApiError(400, 10011, "tags placement not supported for operation")
consumer_create = _with_text(500, 10012, "{}")
CONSUMER_NAME_EXIST = ApiError(400, 10013, "consumer name already in use")
CONSUMER_NOT_FOUND = ApiError(404, 10014, "consumer not found")
SNAPSHOT_DELIVER_SUBJECT_INVALID = ApiError(400, 10015, "deliver subject not valid")
CONSUMER_DURABLE_NAME_NOT_IN_SUBJECT = ApiError(
    400, 10016, "consumer expected to be durable but no durable name set in subject"
)
CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT = ApiError(
    400, 10017, "consumer name in subject does not match durable name in request"
)
CONSUMER_DURABLE_NAME_NOT_SET = ApiError(
    400, 10018, "consumer expected to be durable but a durable name was not set"
)
CONSUMER_EPHEMERAL_WITH_DURABLE_IN_SUBJECT = ApiError(
    400, 10019, "consumer expected to be ephemeral but detected a durable name set in subject"
)
CONSUMER_EPHEMERAL_WITH_DURABLE_NAME = ApiError(
    400, 10020, "consumer expected to be ephemeral but a durable name was set in request"
)
stream_external_api_overlap = _with_two_texts(
    400, 10021, "stream external api prefix {} must not overlap with {}"
)
stream_external_deliver_prefix_overlaps = _with_two_texts(
    400, 10022, "stream external delivery prefix {} overlaps with stream subject {}"
)
INSUFFICIENT_RESOURCES = ApiError(503, 10023, "insufficient resources")
stream_invalid_external_delivery_subject = _with_text(
    400, 10024, "stream external delivery prefix {} must not contain wildcards"
)
invalid_json = _with_text(400, 10025, "invalid JSON: {}")
MAXIMUM_CONSUMERS_LIMIT = ApiError(400, 10026, "maximum consumers limit reached")
MAXIMUM_STREAMS_LIMIT = ApiError(400, 10027, "maximum number of streams reached")
MEMORY_RESOURCES_EXCEEDED = ApiError(500, 10028, "insufficient memory resources available")
mirror_consumer_setup_failed = _with_text(500, 10029, "{}")
MIRROR_MAX_MESSAGE_SIZE_TOO_BIG = ApiError(400, 10030, "stream mirror must have max message size >= source")
MIRROR_WITH_SOURCES = ApiError(400, 10031, "stream mirrors can not also contain other sources")
MIRROR_WITH_START_SEQUENCE_AND_TIME = ApiError(
    400, 10032, "stream mirrors can not have both start seq and start time configured"
)
MIRROR_WITH_SUBJECT_FILTERS = ApiError(400, 10033, "stream mirrors can not contain filtered subjects")
MIRROR_WITH_SUBJECTS = ApiError(400, 10034, "stream mirrors can not contain subjects")
NO_ACCOUNT = ApiError(503, 10035, "account not found")
CLUSTER_UNSUPPORTED_FEATURE = ApiError(503, 10036, "not currently supported in clustered mode")
NO_MESSAGE_FOUND = ApiError(404, 10037, "no message found")
NOT_EMPTY_REQUEST = ApiError(400, 10038, "expected an empty request payload")
NOT_ENABLED_FOR_ACCOUNT = ApiError(503, 10039, "JetStream not enabled for account")
CLUSTER_PEER_NOT_MEMBER = ApiError(400, 10040, "peer not a member")
raft_general = _with_text(500, 10041, "{}")
restore_subscribe_failed = _with_two_texts(
    500, 10042, "JetStream unable to subscribe to restore snapshot {}: {}"
)
sequence_not_found = _with_number(400, 10043, "sequence {} not found")
CLUSTER_SERVER_NOT_MEMBER = ApiError(400, 10044, "server is not a member of the cluster")
source_consumer_setup_failed = _with_text(500, 10045, "{}")
SOURCE_MAX_MESSAGE_SIZE_TOO_BIG = ApiError(400, 10046, "stream source must have max message size >= target")
STORAGE_RESOURCES_EXCEEDED = ApiError(500, 10047, "insufficient storage resources available")
stream_assignment = _with_text(500, 10048, "{}")
stream_create = _with_text(500, 10049, "{}")
stream_delete = _with_text(500, 10050, "{}")
stream_general = _with_text(500, 10051, "{}")
stream_invalid_config = _with_text(500, 10052, "{}")
stream_limits = _with_text(500, 10053, "{}")
STREAM_MESSAGE_EXCEEDS_MAXIMUM = ApiError(400, 10054, "message size exceeds maximum allowed")
STREAM_MIRROR_NOT_UPDATABLE = ApiError(400, 10055, "stream mirror configuration can not be updated")
STREAM_MISMATCH = ApiError(400, 10056, "stream name in subject does not match request")
stream_message_delete_failed = _with_text(500, 10057, "{}")
STREAM_NAME_EXIST = ApiError(400, 10058, "stream name already in use with a different configuration")
STREAM_NOT_FOUND = ApiError(404, 10059, "stream not found")
STREAM_NOT_MATCH = ApiError(400, 10060, "expected stream does not match")
STREAM_REPLICAS_NOT_UPDATABLE = ApiError(400, 10061, "Replicas configuration can not be updated")
stream_restore = _with_text(500, 10062, "restore failed: {}")
STREAM_SEQUENCE_NOT_MATCH = ApiError(503, 10063, "expected stream sequence does not match")
stream_snapshot = _with_text(500, 10064, "snapshot failed: {}")
STREAM_SUBJECT_OVERLAP = ApiError(400, 10065, "subjects overlap with an existing stream")
stream_template_create = _with_text(500, 10066, "{}")
stream_template_delete = _with_text(500, 10067, "{}")
STREAM_TEMPLATE_NOT_FOUND = ApiError(404, 10068, "template not found")
stream_update = _with_text(500, 10069, "{}")
stream_wrong_last_message_id = _with_text(400, 10070, "wrong last msg ID: {}")
stream_wrong_last_sequence = _with_number(400, 10071, "wrong last sequence: {}")
TEMP_STORAGE_FAILED = ApiError(500, 10072, "JetStream unable to open temp storage for restore")
TEMPLATE_NAME_NOT_MATCH_SUBJECT = ApiError(400, 10073, "template name in subject does not match request")
STREAM_REPLICAS_NOT_SUPPORTED = ApiError(500, 10074, "replicas > 1 not supported in non-clustered mode")
PEER_REMAP = ApiError(503, 10075, "peer remap failed")
NOT_ENABLED = ApiError(503, 10076, "JetStream not enabled")
stream_store_failed = _with_text(503, 10077, "{}")
CONSUMER_CONFIG_REQUIRED = ApiError(400, 10078, "consumer config required")
CONSUMER_DELIVER_TO_WILDCARDS = ApiError(400, 10079, "consumer deliver subject has wildcards")
CONSUMER_PUSH_MAX_WAITING = ApiError(400, 10080, "consumer in push mode can not set max waiting")
CONSUMER_DELIVER_CYCLE = ApiError(400, 10081, "consumer deliver subject forms a cycle")
CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED = ApiError(
    400, 10082, "consumer requires ack policy for max ack pending"
)
CONSUMER_SMALL_HEARTBEAT = ApiError(400, 10083, "consumer idle heartbeat needs to be >= 100ms")
CONSUMER_PULL_REQUIRES_ACK = ApiError(
    400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream"
)
CONSUMER_PULL_NOT_DURABLE = ApiError(400, 10085, "consumer in pull mode requires a durable name")
CONSUMER_PULL_WITH_RATE_LIMIT = ApiError(400, 10086, "consumer in pull mode can not have rate limit set")
CONSUMER_MAX_WAITING_NEGATIVE = ApiError(400, 10087, "consumer max waiting needs to be positive")
CONSUMER_HEARTBEAT_REQUIRES_PUSH = ApiError(
    400, 10088, "consumer idle heartbeat requires a push based consumer"
)
CONSUMER_FLOW_CONTROL_REQUIRES_PUSH = ApiError(
    400, 10089, "consumer flow control requires a push based consumer"
)
CONSUMER_DIRECT_REQUIRES_PUSH = ApiError(400, 10090, "consumer direct requires a push based consumer")
CONSUMER_DIRECT_REQUIRES_EPHEMERAL = ApiError(400, 10091, "consumer direct requires an ephemeral consumer")
CONSUMER_ON_MAPPED = ApiError(400, 10092, "consumer direct on a mapped consumer")
CONSUMER_FILTER_NOT_SUBSET = ApiError(
    400, 10093, "consumer filter subject is not a valid subset of the interest subjects"
)
consumer_invalid_policy = _with_text(400, 10094, "{}")
consumer_invalid_sampling = _with_text(400, 10095, "failed to parse consumer sampling configuration: {}")
STREAM_INVALID = ApiError(500, 10096, "stream not valid")
STREAM_HEADER_EXCEEDS_MAXIMUM = ApiError(400, 10097, "header size exceeds maximum allowed of 64k")
CONSUMER_WORKQUEUE_REQUIRES_EXPLICIT_ACK = ApiError(400, 10098, "workqueue stream requires explicit ack")
CONSUMER_WORKQUEUE_MULTIPLE_UNFILTERED = ApiError(
    400, 10099, "multiple non-filtered consumers not allowed on workqueue stream"
)
CONSUMER_WORKQUEUE_CONSUMER_NOT_UNIQUE = ApiError(
    400, 10100, "filtered consumer not unique on workqueue stream"
)
CONSUMER_WORKQUEUE_CONSUMER_NOT_DELIVER_ALL = ApiError(
    400, 10101, "consumer must be deliver all on workqueue stream"
)
consumer_name_too_long = _with_number(400, 10102, "consumer name is too long, maximum allowed is {}")
CONSUMER_BAD_DURABLE_NAME = ApiError(400, 10103, "durable name can not contain '.', '*', '>'")
consumer_store_failed = _with_text(500, 10104, "error creating store for consumer: {}")
CONSUMER_EXISTING_ACTIVE = ApiError(400, 10105, "consumer already exists and is still active")
CONSUMER_REPLACEMENT_WITH_DIFFERENT_NAME = ApiError(
    400, 10106, "consumer replacement durable config not the same"
)
consumer_description_too_long = _with_number(
    400, 10107, "consumer description is too long, maximum allowed is {}"
)
CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS = ApiError(
    400, 10108, "consumer with flow control also needs heartbeats"
)
STREAM_SEALED = ApiError(400, 10109, "invalid operation on sealed stream")
stream_purge_failed = _with_text(500, 10110, "{}")
stream_rollup_failed = _with_text(500, 10111, "{}")
CONSUMER_INVALID_DELIVER_SUBJECT = ApiError(400, 10112, "invalid push consumer deliver subject")
STREAM_MAX_BYTES_REQUIRED = ApiError(400, 10113, "account requires a stream config to have max bytes set")
CONSUMER_MAX_REQUEST_BATCH_NEGATIVE = ApiError(400, 10114, "consumer max request batch needs to be > 0")
CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL = ApiError(
    400, 10115, "consumer max request expires needs to be >= 1ms"
)
CONSUMER_MAX_DELIVER_BACKOFF = ApiError(
    400, 10116, "max deliver is required to be > length of backoff values"
)
STREAM_INFO_MAX_SUBJECTS = ApiError(500, 10117, "subject details would exceed maximum allowed")
STREAM_OFFLINE = ApiError(500, 10118, "stream is offline")
CONSUMER_OFFLINE = ApiError(500, 10119, "consumer is offline")
NO_LIMITS = ApiError(400, 10120, "no JetStream default or applicable tiered limit present")
consumer_max_pending_ack_excess = _with_number(
    400, 10121, "consumer max ack pending exceeds system limit of {}"
)
STREAM_MAX_STREAM_BYTES_EXCEEDED = ApiError(
    400, 10122, "stream max bytes exceeds account limit max stream bytes"
)
STREAM_MOVE_AND_SCALE = ApiError(400, 10123, "can not move and scale a stream in a single update")
STREAM_MOVE_IN_PROGRESS = ApiError(400, 10124, "stream move already in progress")
consumer_max_request_batch_exceeded = _with_number(
    400, 10125, "consumer max request batch exceeds server limit of {}"
)
CONSUMER_REPLICAS_EXCEEDS_STREAM = ApiError(400, 10126, "consumer config replica count exceeds parent stream")
CONSUMER_NAME_CONTAINS_PATH_SEPARATORS = ApiError(400, 10127, "Consumer name can not contain path separators")
STREAM_NAME_CONTAINS_PATH_SEPARATORS = ApiError(400, 10128, "Stream name can not contain path separators")
STREAM_RECONFIGURE_NOT_IN_PROGRESS = ApiError(400, 10129, "stream reconfiguration not in progress")
STREAM_NAME_EXIST_RESTORE_FAILED = ApiError(400, 10130, "stream name already in use, cannot restore")
CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH = ApiError(
    400, 10131, "Consumer create request did not match filtered subject from create subject"
)
CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH = ApiError(
    400, 10132, "Consumer Durable and Name have to be equal if both are provided"
)
REPLICAS_COUNT_CANNOT_BE_NEGATIVE = ApiError(400, 10133, "replicas count cannot be negative")
CONSUMER_REPLICAS_SHOULD_MATCH_STREAM = ApiError(
    400, 10134, "consumer config replicas must match interest retention stream's replicas"
)
consumer_metadata_length = _with_text(400, 10135, "consumer metadata exceeds maximum size of {}")
CONSUMER_DUPLICATE_FILTER_SUBJECTS = ApiError(
    400, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified"
)
CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED = ApiError(
    400, 10137, "consumer with multiple subject filters cannot use subject based API"
)
CONSUMER_OVERLAPPING_SUBJECT_FILTERS = ApiError(400, 10138, "consumer subject filters cannot overlap")
CONSUMER_EMPTY_FILTER = ApiError(400, 10139, "consumer filter in FilterSubjects cannot be empty")
SOURCE_DUPLICATE_DETECTED = ApiError(400, 10140, "duplicate source configuration detected")
SOURCE_INVALID_STREAM_NAME = ApiError(400, 10141, "sourced stream name is invalid")
MIRROR_INVALID_STREAM_NAME = ApiError(400, 10142, "mirrored stream name is invalid")
MIRROR_WITH_FIRST_SEQUENCE = ApiError(400, 10143, "stream mirrors can not have first sequence configured")
SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED = ApiError(
    400, 10144, "source with multiple subject transforms cannot also have a single subject filter"
)
source_invalid_subject_filter = _with_text(400, 10145, "source transform source: {}")
source_invalid_transform_destination = _with_text(400, 10146, "source transform: {}")
SOURCE_OVERLAPPING_SUBJECT_FILTERS = ApiError(400, 10147, "source filters can not overlap")
CONSUMER_ALREADY_EXISTS = ApiError(400, 10148, "consumer already exists")
CONSUMER_DOES_NOT_EXIST = ApiError(400, 10149, "consumer does not exist")
MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED = ApiError(
    400, 10150, "mirror with multiple subject transforms cannot also have a single subject filter"
)
mirror_invalid_subject_filter = _with_text(400, 10151, "mirror transform source: {}")
MIRROR_OVERLAPPING_SUBJECT_FILTERS = ApiError(400, 10152, "mirror subject filters can not overlap")
consumer_inactive_threshold_excess = _with_text(
    400, 10153, "consumer inactive threshold exceeds system limit of {}"
)
mirror_invalid_transform_destination = _with_text(400, 10154, "mirror transform: {}")
stream_transform_invalid_source = _with_text(400, 10155, "stream transform source: {}")
stream_transform_invalid_destination = _with_text(400, 10156, "stream transform: {}")
pedantic = _with_text(400, 10157, "pedantic mode: {}")
STREAM_DUPLICATE_MESSAGE_CONFLICT = ApiError(409, 10158, "duplicate message id is in process")
CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP = ApiError(
    400, 10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set"
)
CONSUMER_INVALID_PRIORITY_GROUP = ApiError(
    400, 10160, "Provided priority group does not exist for this consumer"
)
CONSUMER_EMPTY_GROUP_NAME = ApiError(400, 10161, "Group name cannot be an empty string")
CONSUMER_INVALID_GROUP_NAME = ApiError(
    400, 10162, "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters"
)
STREAM_EXPECTED_LAST_SEQUENCE_PER_SUBJECT_NOT_READY = ApiError(
    503, 10163, "expected last sequence per subject temporarily unavailable"
)
STREAM_WRONG_LAST_SEQUENCE_CONSTANT = ApiError(400, 10164, "wrong last sequence")
MESSAGE_TTL_INVALID = ApiError(400, 10165, "invalid per-message TTL")
MESSAGE_TTL_DISABLED = ApiError(400, 10166, "per-message TTL is disabled")
STREAM_TOO_MANY_REQUESTS = ApiError(429, 10167, "too many requests")
MESSAGE_INCREMENT_DISABLED = ApiError(400, 10168, "message counters is disabled")
MESSAGE_INCREMENT_MISSING = ApiError(400, 10169, "message counter increment is missing")
MESSAGE_INCREMENT_PAYLOAD = ApiError(400, 10170, "message counter has payload")
MESSAGE_INCREMENT_INVALID = ApiError(400, 10171, "message counter increment is invalid")
MESSAGE_COUNTER_BROKEN = ApiError(400, 10172, "message counter is broken")
MIRROR_WITH_COUNTERS = ApiError(400, 10173, "stream mirrors can not also calculate counters")
ATOMIC_PUBLISH_DISABLED = ApiError(400, 10174, "atomic publish is disabled")
ATOMIC_PUBLISH_MISSING_SEQUENCE = ApiError(400, 10175, "atomic publish sequence is missing")
ATOMIC_PUBLISH_INCOMPLETE_BATCH = ApiError(400, 10176, "atomic publish batch is incomplete")
atomic_publish_unsupported_header_batch = _with_text(400, 10177, "atomic publish unsupported header used: {}")
CONSUMER_PUSH_WITH_PRIORITY_GROUP = ApiError(
    400, 10178, "priority groups can not be used with push consumers"
)
ATOMIC_PUBLISH_INVALID_BATCH_ID = ApiError(400, 10179, "atomic publish batch ID is invalid")
STREAM_MIN_LAST_SEQUENCE = ApiError(412, 10180, "min last sequence")
CONSUMER_ACK_POLICY_INVALID = ApiError(400, 10181, "consumer ack policy invalid")
CONSUMER_REPLAY_POLICY_INVALID = ApiError(400, 10182, "consumer replay policy invalid")
CONSUMER_ACK_WAIT_NEGATIVE = ApiError(400, 10183, "consumer ack wait needs to be positive")
CONSUMER_BACKOFF_NEGATIVE = ApiError(400, 10184, "consumer backoff needs to be positive")
REQUIRED_API_LEVEL = ApiError(412, 10185, "JetStream minimum api level required")
MIRROR_WITH_MESSAGE_SCHEDULES = ApiError(400, 10186, "stream mirrors can not also schedule messages")
SOURCE_WITH_MESSAGE_SCHEDULES = ApiError(400, 10187, "stream source can not also schedule messages")
MESSAGE_SCHEDULES_DISABLED = ApiError(400, 10188, "message schedules is disabled")
MESSAGE_SCHEDULES_PATTERN_INVALID = ApiError(400, 10189, "message schedules pattern is invalid")
MESSAGE_SCHEDULES_TARGET_INVALID = ApiError(400, 10190, "message schedules target is invalid")
MESSAGE_SCHEDULES_TTL_INVALID = ApiError(400, 10191, "message schedules invalid per-message TTL")
MESSAGE_SCHEDULES_ROLLUP_INVALID = ApiError(400, 10192, "message schedules invalid rollup")
STREAM_EXPECTED_LAST_SEQUENCE_PER_SUBJECT_INVALID = ApiError(
    400, 10193, "missing sequence for expected last sequence per subject"
)
stream_offline_reason = _with_text(500, 10194, "stream is offline: {}")
consumer_offline_reason = _with_text(500, 10195, "consumer is offline: {}")
CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE = ApiError(
    400, 10196, "consumer can not have priority groups when policy is none"
)
CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE = ApiError(
    400, 10197, "PinnedTTL cannot be set when PriorityPolicy is none"
)
MIRROR_WITH_ATOMIC_PUBLISH = ApiError(400, 10198, "stream mirrors can not also use atomic publishing")
atomic_publish_too_large_batch = _with_number(400, 10199, "atomic publish batch is too large: {}")
ATOMIC_PUBLISH_INVALID_BATCH_COMMIT = ApiError(400, 10200, "atomic publish batch commit is invalid")
ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE = ApiError(
    400, 10201, "atomic publish batch contains duplicate message id"
)
CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT = ApiError(400, 10202, "cluster member change is in progress")
MESSAGE_SCHEDULES_SOURCE_INVALID = ApiError(400, 10203, "message schedules source is invalid")
consumer_invalid_reset = _with_text(400, 10204, "invalid reset: {}")
BATCH_PUBLISH_DISABLED = ApiError(400, 10205, "batch publish is disabled")
BATCH_PUBLISH_INVALID_PATTERN = ApiError(400, 10206, "batch publish pattern is invalid")
BATCH_PUBLISH_INVALID_BATCH_ID = ApiError(400, 10207, "batch publish ID is invalid")
BATCH_PUBLISH_UNKNOWN_BATCH_ID = ApiError(400, 10208, "batch publish ID unknown")
MIRROR_WITH_BATCH_PUBLISH = ApiError(400, 10209, "stream mirrors can not also use batch publishing")
ATOMIC_PUBLISH_TOO_MANY_INFLIGHT = ApiError(429, 10210, "atomic publish too many inflight")
BATCH_PUBLISH_TOO_MANY_INFLIGHT = ApiError(429, 10211, "batch publish too many inflight")
MESSAGE_SCHEDULES_SCHEDULER_INVALID = ApiError(400, 10212, "message schedules invalid scheduler")
MIRROR_DURABLE_CONSUMER_CONFIG_INVALID = ApiError(400, 10213, "stream mirror consumer config is invalid")
MIRROR_CONSUMER_REQUIRES_ACK_FLOW_CONTROL = ApiError(
    400, 10214, "stream mirror consumer requires flow control ack policy"
)
SOURCE_DURABLE_CONSUMER_CONFIG_INVALID = ApiError(400, 10215, "stream source consumer config is invalid")
SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED = ApiError(400, 10216, "duplicate stream source consumer detected")
SOURCE_CONSUMER_REQUIRES_ACK_FLOW_CONTROL = ApiError(
    400, 10217, "stream source consumer requires flow control ack policy"
)
CONSUMER_ACK_FLOW_CONTROL_REQUIRES_PUSH = ApiError(
    400, 10218, "flow control ack policy requires a push based consumer"
)
CONSUMER_ACK_FLOW_CONTROL_REQUIRES_FLOW_CONTROL = ApiError(
    400, 10219, "flow control ack policy requires flow control"
)
CONSUMER_ACK_FLOW_CONTROL_REQUIRES_MAX_ACK_PENDING = ApiError(
    400, 10220, "flow control ack policy requires max ack pending"
)
CONSUMER_ACK_FLOW_CONTROL_REQUIRES_NO_ACK_WAIT = ApiError(
    400, 10221, "flow control ack policy requires unset ack wait"
)
CONSUMER_ACK_FLOW_CONTROL_REQUIRES_NO_MAX_DELIVER = ApiError(
    400, 10222, "flow control ack policy requires unset max deliver"
)
MESSAGE_SCHEDULES_TIME_ZONE_INVALID = ApiError(400, 10223, "message schedules time zone is invalid")
cluster_rescue = _with_text(400, 10224, "JetStream system rescue not applied: {}")
consumer_stream_identity_mismatch = _with_text(400, 10225, "consumer's stream identity does not match: {}")
STREAM_RECONFIGURE_IN_PROGRESS = ApiError(400, 10226, "stream reconfiguration already in progress")
MESSAGE_SOURCE_HEADER_NOT_ALLOWED = ApiError(400, 10227, "message stream source header is not allowed")
SOURCE_CONSUMER_FLOW_CONTROL_STALLED = ApiError(500, 10228, "stream source consumer stalled on flow control")
