"""The trainer's service as its protocol says it, field by field, for a client that has grpcio and nothing else."""

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

PACKAGE = "gymgui.trainer"
#: name -> fields, as "number name [repeated|optional|oneof] type".
MESSAGES = {
    "SubmitRunRequest": "1 run_id string; 2 config_json string",
    "SubmitRunResponse": "1 run_id string; 2 digest string",
    "CancelRunRequest": "1 run_id string",
    "CancelRunResponse": "",
    "RegisterWorkerRequest": "1 run_id string; 2 worker_id string; 3 worker_kind string; 4 proto_version string; "
    "5 schema_id string; 6 schema_version uint32; 7 supports_pause bool; 8 supports_checkpoint bool",
    "RegisterWorkerResponse": "1 accepted_version string; 2 session_token string",
    "ControlEvent": "1 run_id string; 10 grant_steps oneof uint32; 11 pause oneof bool; 12 resume oneof bool; "
    "13 max_rate_hz oneof uint32",
    "RunRecord": "1 run_id string; 2 status RunStatus; 3 digest string; 4 created_at Timestamp; "
    "5 updated_at Timestamp; 6 last_heartbeat Timestamp; 7 gpu_slot optional int32; "
    "8 failure_reason optional string; 9 gpu_slots repeated int32; 10 seq_id uint64",
    "ListRunsRequest": "1 status_filter repeated RunStatus",
    "ListRunsResponse": "1 runs repeated RunRecord",
    "WatchRunsRequest": "1 status_filter repeated RunStatus; 2 since_seq uint64",
    "HeartbeatRequest": "1 run_id string",
    "HeartbeatResponse": "",
    "HealthCheckRequest": "",
    "HealthCheckResponse": "1 pid uint64; 2 started_at Timestamp; 3 listen_address string; 4 healthy bool",
    "StreamStepsRequest": "1 run_id string; 2 since_seq uint64",
    "StreamEpisodesRequest": "1 run_id string; 2 since_seq uint64",
    "RunStep": "1 run_id string; 2 episode_index uint64; 3 step_index uint64; 4 action_json string; "
    "5 observation_json string; 6 reward double; 7 terminated bool; 8 truncated bool; 9 timestamp Timestamp; "
    "10 policy_label string; 11 backend string; 12 seq_id uint64; 13 agent_id string; 14 render_hint_json string; "
    "15 frame_ref string; 16 payload_version uint32; 17 render_payload_json string; 18 episode_seed uint64; "
    "19 worker_id string",
    "RunEpisode": "1 run_id string; 2 episode_index uint64; 3 total_reward double; 4 steps uint64; 5 terminated bool; "
    "6 truncated bool; 7 metadata_json string; 8 timestamp Timestamp; 9 seq_id uint64; 10 agent_id string; "
    "11 worker_id string",
    "PublishTelemetryResponse": "1 accepted uint64; 2 dropped uint64",
}
STATUSES = ("UNSPECIFIED", "INIT", "HSHK", "RDY", "EXEC", "PAUSE", "FAULT", "TERM")
#: method -> request, reply, whether each is a stream.
METHODS = {
    "SubmitRun": ("SubmitRunRequest", "SubmitRunResponse", "unary_unary"),
    "CancelRun": ("CancelRunRequest", "CancelRunResponse", "unary_unary"),
    "ListRuns": ("ListRunsRequest", "ListRunsResponse", "unary_unary"),
    "WatchRuns": ("WatchRunsRequest", "RunRecord", "unary_stream"),
    "Heartbeat": ("HeartbeatRequest", "HeartbeatResponse", "unary_unary"),
    "RegisterWorker": ("RegisterWorkerRequest", "RegisterWorkerResponse", "unary_unary"),
    "ControlStream": ("ControlEvent", "ControlEvent", "stream_stream"),
    "GetHealth": ("HealthCheckRequest", "HealthCheckResponse", "unary_unary"),
    "StreamRunSteps": ("StreamStepsRequest", "RunStep", "unary_stream"),
    "StreamRunEpisodes": ("StreamEpisodesRequest", "RunEpisode", "unary_stream"),
    "PublishRunSteps": ("RunStep", "PublishTelemetryResponse", "stream_unary"),
    "PublishRunEpisodes": ("RunEpisode", "PublishTelemetryResponse", "stream_unary"),
}

_FIELD = descriptor_pb2.FieldDescriptorProto


def _field(message, text):
    number, name, *labels, kind = text.split()
    field = message.field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
    if kind == "Timestamp":
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp"
    elif kind == "RunStatus":
        field.type, field.type_name = _FIELD.TYPE_ENUM, f".{PACKAGE}.RunStatus"
    elif kind == "RunRecord":
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{PACKAGE}.RunRecord"
    else:
        field.type = getattr(_FIELD, f"TYPE_{kind.upper()}")
    if "repeated" in labels:
        field.label = _FIELD.LABEL_REPEATED
    elif "oneof" in labels:
        if not message.oneof_decl:
            message.oneof_decl.add(name="event")
        field.oneof_index = 0
    elif "optional" in labels:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def _classes():
    file = descriptor_pb2.FileDescriptorProto(name="trainer.proto", package=PACKAGE, syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    enum = file.enum_type.add(name="RunStatus")
    for number, name in enumerate(STATUSES):
        enum.value.add(name=f"RUN_STATUS_{name}", number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in filter(None, fields.split("; ")):
            _field(message, text)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


pb = type("Messages", (), _classes())


class Stub:
    """Calls the service."""

    def __init__(self, channel):
        for name, (request, reply, kind) in METHODS.items():
            call = getattr(channel, kind)(
                f"/{PACKAGE}.TrainerService/{name}",
                request_serializer=getattr(pb, request).SerializeToString,
                response_deserializer=getattr(pb, reply).FromString,
            )
            setattr(self, name, call)


def connect(target):
    """Return a channel to a trainer, and what calls it."""
    channel = grpc.insecure_channel(target)
    return channel, Stub(channel)
