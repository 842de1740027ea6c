"""The registry of implementations."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

import trio_cogment.sync
from trio_cogment.base.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from trio_cogment.base.services import IMPLEMENTATION, ServiceKind
from trio_cogment.rpc import Metadata
from trio_cogment.sdk import EnvironmentSession, Participants
from trio_cogment.sdk._participants import only
from trio_cogment.sdk.spec import ActorClass, Spec


async def maze(session: EnvironmentSession) -> None:
    await session.start()


def ordinary(_session: Any) -> None:
    raise AssertionError


async def with_yield(_session: Any) -> AsyncIterator[int]:
    yield 1


class Game:
    async def __call__(self, _session: Any) -> None:
        raise AssertionError

    async def play(self, _size: int, _session: Any) -> None:
        raise AssertionError


class OrdinaryGame:
    def __call__(self, _session: Any) -> None:
        raise AssertionError


@functools.wraps(maze)
def wrapped(session: EnvironmentSession) -> Coroutine[Any, Any, None]:
    return maze(session)


REGISTER = [
    Participants.register_environment,
    functools.partial(Participants.register_actor, name="x"),
    Participants.register_pre_trial_hook,
    Participants.register_datalog,
]


def test_an_environment_is_unregistered() -> None:
    participants = Participants()
    participants.register_environment(maze, "maze")
    assert len(participants.kinds()) == 1
    participants.unregister_environment("maze")
    assert participants.kinds() == set()
    with pytest.raises(NotFoundError, match="environment 'maze': not registered"):
        participants.unregister_environment("maze")


@pytest.mark.parametrize("register", REGISTER)
@pytest.mark.parametrize(
    ("implementation", "said"),
    [
        (ordinary, "expected an async function, got the ordinary function 'ordinary'; write `async def`"),
        (OrdinaryGame(), "expected an async function, got the ordinary function '__call__'"),
        (functools.partial(ordinary), "expected an async function, got the ordinary function 'ordinary'"),
        (with_yield, "expected an async function, got 'with_yield', which has a `yield`"),
        (Game, "expected an async function, got the class 'Game'"),
        (7, "expected an async function, got 7"),
    ],
)
def test_what_is_no_async_function_is_refused(register: Callable[..., None], implementation: object, said: str) -> None:
    participants = Participants()
    with pytest.raises(InvalidArgumentError) as caught:
        register(participants, implementation)
    assert said in str(caught.value)
    assert participants.kinds() == set()


@pytest.mark.parametrize("register", REGISTER)
def test_a_coroutine_is_refused(register: Callable[..., None]) -> None:
    """And closed: nobody is told that it was never awaited."""
    with pytest.raises(InvalidArgumentError, match=r"got a coroutine: give `maze`, not `maze\(\)`"):
        register(Participants(), maze(None))  # type: ignore[arg-type]  # it never runs


@pytest.mark.parametrize(
    "implementation",
    [
        maze,
        Game(),
        functools.partial(Game().play, 7),
        wrapped,
        lambda session: maze(session),
        trio_cogment.sync.actor(ordinary),
    ],
)
@pytest.mark.parametrize("register", REGISTER)
def test_what_may_be_awaited_is_taken(register: Callable[..., None], implementation: object) -> None:
    participants = Participants()
    register(participants, implementation)
    assert len(participants.kinds()) == 1


def test_a_class_that_the_spec_lacks_is_refused() -> None:
    participants = Participants(Spec.of(ActorClass("player"), ActorClass("judge")))
    with pytest.raises(InvalidArgumentError, match=r"actor 'x': .* class 'playr'; did you mean 'player'\?"):
        participants.register_actor(maze, "x", ["judge", "playr"])  # type: ignore[arg-type]  # it never runs
    with pytest.raises(InvalidArgumentError, match="no actor class 'zzz'; expected one of player, judge"):
        participants.register_actor(maze, "x", ["zzz"])  # type: ignore[arg-type]  # it never runs
    Participants().register_actor(maze, "x", ["zzz"])  # type: ignore[arg-type]  # it never runs


def test_a_name_that_is_taken() -> None:
    participants = Participants()
    participants.register_environment(maze, "maze")
    with pytest.raises(AlreadyExistsError, match="'maze' is registered already in this Participants object; platforms"):
        participants.register_environment(maze, "maze")


def test_a_directory_is_told_of_all_hooks_and_of_the_first_data_log() -> None:
    """It cannot choose among several, and all hooks run."""

    async def never(_session: Any) -> None:
        raise AssertionError

    participants = Participants()
    for number in range(3):
        name = f"n{number}"
        participants.register_pre_trial_hook(never, name, properties={f"hook {number}": "x"})
        participants.register_datalog(never, name, properties={f"log {number}": "x"})
    offers = {offer.kind: offer for offer in participants.offers(9001)}
    assert len(offers) == len(participants.offers(9001)) == 2
    assert offers[ServiceKind.PRE_TRIAL_HOOK].properties == {f"hook {number}": "x" for number in range(3)}
    assert offers[ServiceKind.DATALOG].properties == {"log 0": "x"}
    assert {offer.port for offer in offers.values()} == {9001}


@pytest.mark.parametrize(
    "register",
    [Participants.register_environment, Participants.register_pre_trial_hook, Participants.register_datalog],
)
def test_what_has_no_name_is_the_default(register: Callable[..., None]) -> None:
    async def never(_session: Any) -> None:
        raise AssertionError

    participants = Participants()
    register(participants, never)
    with pytest.raises(AlreadyExistsError, match="default"):
        register(participants, never, "default")


def call_with(**metadata: str) -> Any:
    return SimpleNamespace(metadata=Metadata([(name.replace("_", "-"), value) for name, value in metadata.items()]))


def test_metadata_that_a_call_must_have() -> None:
    assert only(call_with(trial_id="t"), "trial-id") == "t"
    with pytest.raises(InvalidArgumentError, match=r"^metadata trial-id: expected one value$"):
        only(call_with(), "trial-id")


def test_an_implementation_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    participants = Participants()
    monkeypatch.setattr(participants, "_plugin", lambda _kind, name: maze if name == "theirs" else None)
    call = call_with()
    monkeypatch.setattr(participants, "choose", lambda _kind, wanted: wanted[IMPLEMENTATION])
    assert participants.find(ServiceKind.ENVIRONMENT, call, "trial 't'", "theirs").implementation is maze
    with pytest.raises(NotFoundError, match="trial 't'"):
        participants.find(ServiceKind.ENVIRONMENT, call, "trial 't'", "nobody's")
