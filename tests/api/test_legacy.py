"""The messages of the legacy API: laid out as they were, and beside those of the present API."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from trio_cogment.api import agent_pb2 as present_agent_pb2
from trio_cogment.api import common_pb2 as present_common_pb2
from trio_cogment.api.legacy import agent_pb2, common_pb2, data_pb2, environment_pb2, hooks_pb2, orchestrator_pb2

FILES = [agent_pb2, common_pb2, data_pb2, environment_pb2, hooks_pb2, orchestrator_pb2]
METHODS = {
    "cogment.Agent": "Start End Decide Reward Version OnMessage",
    "cogment.Environment": "Start End Update Version OnMessage",
    "cogment.LogExporter": "Log",
    "cogment.Trial": ("GetTrialParams Start Join End Action ActionStream Heartbeat GiveFeedback Version SendMessage"),
    "cogment.TrialHooks": "PreTrial Version",
}


def test_files_are_called_as_they_were() -> None:
    assert {module.DESCRIPTOR.name for module in FILES} == {
        f"cogment/api/{name}.proto" for name in ("agent", "common", "data", "environment", "hooks", "orchestrator")
    }
    assert all(module.DESCRIPTOR.package == "cogment" for module in FILES)


def test_services_have_the_methods_that_they_had() -> None:
    services = [service for module in FILES for service in module.DESCRIPTOR.services_by_name.values()]
    assert {service.full_name: " ".join(service.methods_by_name) for service in services} == METHODS
    stream = orchestrator_pb2.DESCRIPTOR.services_by_name["Trial"].methods_by_name["ActionStream"]
    assert stream.client_streaming
    assert stream.server_streaming


def test_both_dialects_live_in_one_process() -> None:
    assert agent_pb2.DESCRIPTOR.name == present_agent_pb2.DESCRIPTOR.name
    assert agent_pb2.DESCRIPTOR.pool is not present_agent_pb2.DESCRIPTOR.pool
    assert common_pb2.Reward(value=2).SerializeToString() != present_common_pb2.Reward(value=2).SerializeToString()


@pytest.mark.parametrize(
    ("message", "field", "number", "kind"),
    [
        (common_pb2.ActorParams, "endpoint", 2, FieldDescriptor.TYPE_STRING),
        (common_pb2.Feedback, "actor_id", 1, FieldDescriptor.TYPE_UINT32),
        (common_pb2.Feedback, "agent_id", 7, FieldDescriptor.TYPE_UINT32),
        (common_pb2.Observation, "timestamp", 2, FieldDescriptor.TYPE_FIXED64),
        (common_pb2.Reward, "value", 1, FieldDescriptor.TYPE_FLOAT),
        (orchestrator_pb2.TrialStartRequest, "config", 1, FieldDescriptor.TYPE_MESSAGE),
        (orchestrator_pb2.TrialStartReply, "actor_counts", 5, FieldDescriptor.TYPE_INT32),
        (orchestrator_pb2.TrialActionReply, "trial_is_over", 3, FieldDescriptor.TYPE_BOOL),
        (environment_pb2.EnvStartReply, "observation_set", 1, FieldDescriptor.TYPE_MESSAGE),
        (environment_pb2.EnvUpdateReply, "end_trial", 3, FieldDescriptor.TYPE_BOOL),
        (environment_pb2.ObservationSet, "tick_id", 1, FieldDescriptor.TYPE_UINT64),
        (common_pb2.VersionInfo, "versions", 1, FieldDescriptor.TYPE_MESSAGE),
        (agent_pb2.AgentOnMessageRequest, "messages", 3, FieldDescriptor.TYPE_MESSAGE),
        (environment_pb2.EnvOnMessageRequest, "messages", 3, FieldDescriptor.TYPE_MESSAGE),
    ],
)
def test_fields_where_the_documents_of_the_time_differ(
    message: type[Message], field: str, number: int, kind: int
) -> None:
    found = message.DESCRIPTOR.fields_by_name[field]
    assert (found.number, found.type) == (number, kind)
