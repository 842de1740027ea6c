"""The body that starts a trial."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateways.rest.playing import spec
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.rest.starting import trial_from_json

ENVIRONMENT = {"implementation": "field"}
ANN = {"name": "ann", "actor_class": "player", "implementation": "web"}


def body(**more: Any) -> dict[str, Any]:
    return {"environment": ENVIRONMENT, "actors": [ANN], **more}


def test_everything_that_there_is() -> None:
    types = spec()
    referee = {
        "name": "eve",
        "actor_class": "referee",
        "endpoint": "cogment://client",
        "initial_connection_timeout": 1.5,
        "response_timeout": 2,
        "optional": True,
        "default_action": {"verdict": "fair"},
    }
    trial_id, params = trial_from_json(
        {
            "trial_id": "t",
            "config": {"last_tick": 3},
            "properties": {"a": "b"},
            "max_steps": 5,
            "max_inactivity": 6,
            "nb_buffered_ticks": "7",
            "datalog": {"endpoint": "cogment://discover", "exclude_fields": ["messages"]},
            "environment": {"name": "e", "endpoint": "cogment://discover", "implementation": "field", "config": {}},
            "actors": [{**ANN, "config": {"bonus": 4}}, referee],
        },
        types,
    )
    assert trial_id == "t"
    expected = TrialParams(max_steps=5, max_inactivity=6, nb_buffered_ticks=7, properties={"a": "b"})
    expected.trial_config.content = types.trial_config(last_tick=3).SerializeToString()  # type: ignore[misc]  # there is one
    expected.datalog.endpoint = "cogment://discover"
    expected.datalog.exclude_fields.append("messages")
    expected.environment.name, expected.environment.endpoint = "e", "cogment://discover"
    expected.environment.implementation = "field"
    expected.environment.config.SetInParent()
    ann = expected.actors.add(name="ann", actor_class="player", implementation="web")
    ann.config.content = b"\x08\x04"
    eve = expected.actors.add(name="eve", actor_class="referee", endpoint="cogment://client", optional=True)
    eve.initial_connection_timeout, eve.response_timeout = 1.5, 2
    eve.default_action.content = b"\x0a\x04fair"
    assert params == expected


def test_what_is_left_out() -> None:
    """A configuration is there if a type is declared for it, as with the reference; a default action is not."""
    trial_id, params = trial_from_json(body(actors=[ANN, {**ANN, "name": "eve", "actor_class": "referee"}]), spec())
    assert trial_id == ""
    assert params.HasField("trial_config")
    assert params.environment.HasField("config")
    assert [actor.HasField("config") for actor in params.actors] == [True, False]
    assert not any(actor.HasField("default_action") for actor in params.actors)
    assert not params.HasField("datalog")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "body: expected an object"),
        ({}, "environment: expected an object"),
        ({"environment": ENVIRONMENT}, "actors: expected one at least"),
        (body(actors={}), "actors: expected a list"),
        (body(actors=[5]), r"actors\[0\]: expected an object"),
        (body(actors=[{**ANN, "endpiont": ""}]), r"actors\[0\].endpiont: there is no such field; expected name, "),
        (body(environment={}), r"environment.implementation: expected a name"),
        (body(environment={"implementation": 5}), r"environment.implementation: expected a text"),
        (body(trial_config={}), "trial_config: there is no such field"),
        (body(nb_buffered_ticks="1"), "nb_buffered_ticks: expected 2 or more"),
        (body(nb_buffered_ticks="x"), "nb_buffered_ticks: expected an integer as a text"),
        (body(max_steps=-1), "body: expected cogmentAPI.TrialParams: .*max_steps"),
        (body(properties={"a": 1}), "body: expected cogmentAPI.TrialParams: .*properties"),
        (body(config={"nothing": 1}), "config: expected data.TrialConfig"),
        (body(environment={**ENVIRONMENT, "config": 5}), "environment.config: expected an object"),
        (body(actors=[{**ANN, "default_action": {"x": 1}}]), r"actors\[0\].default_action: expected data.PlayerAct"),
        (body(actors=[{**ANN, "endpoint": "grpc://host:1"}]), r"actors\[0\].endpoint: expected cogment://discover"),
        (body(actors=[{**ANN, "endpoint": "legacy://h:1"}]), r"actors\[0\].endpoint: expected cogment://discover"),
        (body(actors=[{**ANN, "endpoint": "nonsense"}]), r"actors\[0\].endpoint: "),
        (body(environment={**ENVIRONMENT, "endpoint": "grpc://h:1"}), "environment.endpoint: expected cogment"),
        (body(datalog={"endpoint": "grpc://h:1"}), "datalog.endpoint: expected cogment"),
        (body(trial_id=5), "trial_id: expected a text"),
    ],
)
def test_what_makes_no_sense(given: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{text}"):
        trial_from_json(given, spec())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("cogment://discover"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "endpoint", "implementation", "config", "actor_class"]), inner)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["environment", "actors", "config", "max_steps", "datalog", "x"]), VALUES))
def test_no_body_breaks_it(given_body: dict[str, Any]) -> None:
    try:
        _, params = trial_from_json(given_body, spec())
    except InvalidArgumentError:
        return
    assert params.environment.implementation
    assert params.actors
