"""Large payloads located in the bytes of the wire: the same as protobuf finds, or left to protobuf."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import (
    Action,
    ActorRunTrialInput,
    ActorRunTrialOutput,
    CommunicationState,
    EndOfTrial,
    Observation,
)
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import ActionSet, EnvRunTrialInput, EnvRunTrialOutput, ObservationSet
from trio_cogment.base.shared_message import LOCATED_BYTES, locator

NORMAL, LAST = CommunicationState.NORMAL, CommunicationState.LAST
CONTENT = st.one_of(
    st.binary(max_size=20), st.sampled_from([bytes(127), bytes(128), b"x" * LOCATED_BYTES, b"y" * 2**21])
)
TIMES = st.integers(0, 2**64 - 1)
SIGNED = st.integers(-(2**63), 2**63 - 1)
INDEXES = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5)

MESSAGES = st.one_of(
    st.builds(
        lambda **set_: EnvRunTrialOutput(state=NORMAL, observation_set=ObservationSet(**set_)),
        tick_id=SIGNED,
        timestamp=TIMES,
        observations=st.lists(CONTENT, max_size=4),
        actors_map=INDEXES,
    ),
    st.builds(
        lambda **set_: EnvRunTrialInput(state=NORMAL, action_set=ActionSet(**set_)),
        tick_id=TIMES,
        timestamp=TIMES,
        actions=st.lists(CONTENT, max_size=4),
        unavailable_actors=st.lists(st.integers(0, 2**32 - 1), max_size=5),
    ),
    st.builds(
        lambda **observation: ActorRunTrialInput(state=NORMAL, observation=Observation(**observation)),
        tick_id=TIMES,
        timestamp=TIMES,
        content=CONTENT.filter(bool),
    ),
    st.builds(
        lambda **action: ActorRunTrialOutput(state=NORMAL, action=Action(**action)),
        tick_id=SIGNED,
        timestamp=TIMES,
        content=CONTENT.filter(bool),
    ),
)


def located(kind: Any, data: bytes) -> Any:
    locate = locator(kind)
    assert locate is not None
    found = locate(data)
    view = locate(memoryview(data))
    assert (found is None) == (view is None)
    if found is not None and view is not None:
        assert found.whole() == view.whole()
    return found


@given(MESSAGES)
def test_it_is_what_protobuf_finds(message: Any) -> None:
    found = located(type(message), message.SerializeToString())
    assert found.kind is type(message)
    assert found.whole() == message


@given(MESSAGES, st.data())
def test_of_other_bytes_it_is_the_same_or_nothing(message: Any, data: st.DataObject) -> None:
    """Cut off, changed or with something added: it never finds what protobuf does not."""
    wire = bytearray(message.SerializeToString())
    cut = data.draw(st.integers(0, len(wire)))
    change = data.draw(st.sampled_from(["cut", "change", "add", "insert"]))
    if change == "cut":
        del wire[cut:]
    elif change == "change" and wire:
        wire[min(cut, len(wire) - 1)] = data.draw(st.integers(0, 255))
    else:
        added = data.draw(st.binary(max_size=12))
        wire[cut:cut] = added
    found = located(type(message), bytes(wire))
    if found is not None:
        expected = type(message).FromString(bytes(wire))
        assert found.whole() == expected


FULL = ObservationSet(tick_id=3, timestamp=5, observations=[b"a" * LOCATED_BYTES], actors_map=[0, 0])
SAVED = ObservationSet(observations=[b"a"], checkpoint={"content": b"c"})
CROWDED = ObservationSet(observations=[b""] * 600)
UNKNOWN = Observation(tick_id=1, content=b"c").SerializeToString() + b"\x7a\x01x"  # a field with the number 15


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (EnvRunTrialOutput, EnvRunTrialOutput(state=NORMAL).SerializeToString()),
        (EnvRunTrialOutput, EnvRunTrialOutput(state=LAST, observation_set=FULL).SerializeToString()),
        (EnvRunTrialOutput, EnvRunTrialOutput(observation_set=FULL).SerializeToString()),
        (EnvRunTrialOutput, EnvRunTrialOutput(state=NORMAL, details="x" * LOCATED_BYTES).SerializeToString()),
        (EnvRunTrialOutput, 2 * EnvRunTrialOutput(state=NORMAL, observation_set=FULL).SerializeToString()),
        (ActorRunTrialInput, b"\x08\x01\x1a" + bytes([len(UNKNOWN)]) + UNKNOWN),
        (ActorRunTrialInput, ActorRunTrialInput(state=NORMAL, observation=Observation(tick_id=1)).SerializeToString()),
        (ActorRunTrialInput, b"\x08\x01\x1a\x06\x1a\x01x\x1a\x01y"),  # the content comes twice
        (
            ActorRunTrialInput,
            ActorRunTrialInput(
                state=NORMAL, observation=Observation(content=b"x"), end=EndOfTrial()
            ).SerializeToString(),
        ),
        (
            EnvRunTrialOutput,
            EnvRunTrialOutput(
                state=NORMAL, observation_set=ObservationSet(observations=[b""] * 600)
            ).SerializeToString(),
        ),
        (EnvRunTrialOutput, EnvRunTrialOutput(state=NORMAL, observation_set=SAVED).SerializeToString()),
        (EnvRunTrialOutput, b"\x08\x01"),
        (EnvRunTrialOutput, b""),
    ],
)
def test_what_is_unusual_is_left_to_protobuf(kind: Any, data: bytes) -> None:
    assert located(kind, data) is None


def test_a_number_that_does_not_end_is_left_to_protobuf() -> None:
    data = b"\x08\x01\x1a\x0c\x08" + b"\xff" * 11
    assert located(ActorRunTrialInput, data) is None
    with pytest.raises(DecodeError):
        ActorRunTrialInput.FromString(data)


def test_most_messages_have_no_payload_to_be_located() -> None:
    assert locator(DatalogSample) is None
