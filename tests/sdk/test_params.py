"""Trial parameters: making them, checking their payloads, reading them, and their bytes."""

from __future__ import annotations

import pytest
from google.protobuf.wrappers_pb2 import BoolValue, StringValue, UInt32Value

from trio_cogment import ActorClass, PreTrialSession, Spec, actor_params, trial_params
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.sdk import actor_config, default_action, environment_config, serialized, trial_config

SPEC = Spec(
    (ActorClass("number", observation=UInt32Value, action=UInt32Value, config=StringValue), ActorClass("raw")),
    environment_config=BoolValue,
    trial_config=StringValue,
)


def whole() -> TrialParams:
    nora = actor_params(
        "nora",
        "number",
        implementation="player",
        endpoint="grpc://host:1",
        config=StringValue(value="c"),
        initial_connection_timeout_seconds=1.5,
        response_timeout_seconds=2.5,
        optional=True,
        observe_every=5,
        hold_action=True,
        default_action=UInt32Value(value=3),
        spec=SPEC,
    )
    return trial_params(
        [nora, actor_params("rita", "raw", config=b"\1", spec=SPEC)],
        environment="game",
        environment_endpoint="grpc://host:2",
        environment_name="world",
        environment_config=BoolValue(value=True),
        trial_config=StringValue(value="t"),
        datalog_endpoint="cogment://discover",
        datalog_exclude_fields=["messages", "rewards"],
        tick_hz=60,
        max_steps=7,
        max_inactivity_seconds=8,
        nb_buffered_ticks=9,
        properties={"a": "b"},
        spec=SPEC,
    )


def test_payloads_are_read_with_their_types() -> None:
    params = whole()
    nora, rita = params.actors
    assert trial_config(params, SPEC) == StringValue(value="t")
    assert environment_config(params, SPEC) == BoolValue(value=True)
    assert (actor_config(nora, SPEC), default_action(nora, SPEC)) == (StringValue(value="c"), UInt32Value(value=3))
    assert (actor_config(rita, SPEC), default_action(rita, SPEC)) == (b"\1", None)
    empty = TrialParams()
    assert trial_config(empty, SPEC) is None
    assert environment_config(empty, SPEC) is None


def test_every_field_is_set() -> None:
    params = whole()
    assert {field.name for field, _ in params.ListFields()} == {field.name for field in TrialParams.DESCRIPTOR.fields}
    nora = params.actors[0]
    assert {field.name for field, _ in nora.ListFields()} == {field.name for field in nora.DESCRIPTOR.fields}
    assert (nora.initial_connection_timeout, nora.response_timeout, nora.optional) == (1.5, 2.5, True)
    assert (nora.observe_every, nora.hold_action) == (5, True)
    environment = params.environment
    assert {field.name for field, _ in environment.ListFields()} == {f.name for f in environment.DESCRIPTOR.fields}
    assert (environment.name, environment.implementation, environment.tick_hz) == ("world", "game", 60)
    assert list(params.datalog.exclude_fields) == ["messages", "rewards"]


def test_config_that_is_changed_in_place() -> None:
    params = whole()
    params.actors[0].config.CopyFrom(serialized(StringValue(value="new")))
    assert actor_config(params.actors[0], SPEC) == StringValue(value="new")
    with pytest.raises(InvalidArgumentError, match="payload: expected bytes or a message, got str"):
        serialized("text")  # type: ignore[arg-type]  # that is the test


def test_parameters_are_read_back_from_their_bytes() -> None:
    params = whole()
    assert TrialParams.FromString(params.SerializeToString()) == params


def test_payload_of_the_wrong_type() -> None:
    number = UInt32Value(value=1)
    for make, text in (
        (lambda: actor_params("n", "number", config=number, spec=SPEC), "actor 'n': config: expected StringValue, got"),
        (
            lambda: actor_params("n", "number", default_action=StringValue(), spec=SPEC),
            "actor 'n': default_action: expected UInt32Value, got StringValue",
        ),
        (lambda: trial_params([], environment_config=number, spec=SPEC), "environment_config: expected BoolValue, got"),
        (lambda: trial_params([], trial_config=number, spec=SPEC), "trial_config: expected StringValue, got"),
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            make()


def test_payload_that_cannot_be_read() -> None:
    params = trial_params([actor_params("nora", "number", config=b"\x08")])
    with pytest.raises(RemoteProtocolError, match="actor 'nora': config: 1 bytes, not a valid StringValue"):
        actor_config(params.actors[0], SPEC)


def test_hook_reads_the_trial_config() -> None:
    assert PreTrialSession("t", "u", whole(), SPEC).trial_config == StringValue(value="t")
    assert PreTrialSession("t", "u", TrialParams(), SPEC).trial_config is None
    assert PreTrialSession("t", "u", whole()).trial_config == StringValue(value="t").SerializeToString()


def test_a_data_log_is_there_if_it_is_asked_for() -> None:
    assert not trial_params([]).HasField("datalog")
    assert trial_params([], datalog_endpoint="").HasField("datalog")
    assert list(trial_params([], datalog_exclude_fields=["actions"]).datalog.exclude_fields) == ["actions"]
