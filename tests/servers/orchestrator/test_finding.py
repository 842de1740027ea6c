"""Finding participants by a trial's parameters: in which order who is asked for them, and with what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from tests.helpers import counted_rounds, params_of
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.services import ACTOR_CLASS, IMPLEMENTATION, ServiceKind
from trio_cogment.servers.orchestrator._connections import Connections
from trio_cogment.servers.orchestrator._starting import Given, find_everybody
from trio_cogment.trial import ENVIRONMENT


class Asked:
    """Notes what is looked for; what has `client` in it is a client actor."""

    def __init__(self) -> None:
        self.for_: list[tuple[Any, ...]] = []

    async def resolve(
        self,
        text: str,
        kind: ServiceKind,
        field_name: str,
        properties: Mapping[str, str] | None = None,
        *,
        reach: str | None = None,
    ) -> str | None:
        self.for_.append((text, kind, field_name, dict(properties or {}), reach))
        return None if "client" in text else f"target of {text}"


def three() -> TrialParams:
    params = params_of("ann", "bob", "cat")
    params.environment.endpoint = "grpc://env:1"
    params.environment.implementation = "maze"
    for actor, endpoint in zip(params.actors, ("grpc://ann:1", "cogment://discover/client", ""), strict=True):
        actor.endpoint = endpoint
    params.actors[0].implementation = "fast"
    return params


@pytest.mark.parametrize("reach", [None, "near"])
@pytest.mark.parametrize("log", ["", "  ", "grpc://log:1"])
async def test_log_environment_and_actors_are_asked_for_in_this_order(log: str, reach: str | None) -> None:
    params, asked = three(), Asked()
    params.datalog.endpoint = log
    found: Any = await find_everybody(cast(Connections, asked), params, reach)
    targets, datalog = found
    player = {ACTOR_CLASS: "player"}
    of_log: list[Any] = [(log, ServiceKind.DATALOG, "datalog.endpoint", {}, reach)] if log.strip() else []
    assert asked.for_ == [
        *of_log,
        ("grpc://env:1", ServiceKind.ENVIRONMENT, "environment.endpoint", {IMPLEMENTATION: "maze"}, reach),
        (
            "grpc://ann:1",
            ServiceKind.ACTOR,
            "actors[0].endpoint (actor 'ann')",
            {**player, IMPLEMENTATION: "fast"},
            reach,
        ),
        ("cogment://discover/client", ServiceKind.ACTOR, "actors[1].endpoint (actor 'bob')", player, reach),
        ("", ServiceKind.ACTOR, "actors[2].endpoint (actor 'cat')", player, reach),
    ]
    assert datalog == (f"target of {log}" if log.strip() else None)
    assert targets == {ENVIRONMENT: "target of grpc://env:1", 0: "target of grpc://ann:1", 1: None, 2: "target of "}
    assert [actor.endpoint for actor in params.actors] == ["grpc://ann:1", "cogment://client", ""]


@pytest.mark.parametrize(("actors", "turns"), [(99, 0), (100, 1), (199, 1), (200, 2)])
async def test_a_crowd_is_looked_up_in_turns(actors: int, turns: int) -> None:
    params = params_of(*map(str, range(actors)))
    with counted_rounds() as rounds:
        await find_everybody(cast(Connections, Asked()), params, None)
    assert rounds.count == turns


@pytest.mark.parametrize(("params", "reach"), [(None, None), (TrialParams(), "near")])
def test_only_who_gives_parameters_is_held_to_its_reach(params: TrialParams | None, reach: str | None) -> None:
    assert Given(params, None, "near").reach_of_endpoints == reach
