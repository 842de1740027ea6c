"""Faults that no seed draws, so that the seeds stay what they are: plans of the corpus have them.

Limits so small that they are met; a client that joins late, closes its side or wants a place that is taken; peers that
speak HTTP/2 as nobody's library does; and the host of the hooks, in trouble. `tests.sim.reach` draws them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import trio

from tests.rpc.raw_peer import (
    DATA,
    END_STREAM,
    PADDED,
    PREFACE,
    RST,
    RawPeer,
    frame,
    message,
    request_headers,
    settings,
)
from tests.sim.faults import TRIALS, Maker
from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialOutput, CommunicationState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import CallOpener, MetadataLike, Method, RpcConfig, methods_of
from trio_cogment.testing import Fault, FaultPlan, World

if TYPE_CHECKING:
    from tests.sim.play import Play

HOOKS = "hooks"
#: Who does something to its trial's client.
LATE, TWICE, HALF, TIGHT, RUDE = "joins late", "joins twice", "half closes", "tight", "rude peer"
#: Which limit, and what it may be.
LIMITS: dict[str, tuple[float, ...]] = {
    "outbox": (2, 3, 5, 8),
    "queued samples": (1, 2, 3),
    "window": (16, 64, 256),
    "call outbox": (1, 2, 4),
    "heartbeat": (0.3, 2.0),
    "inactivity": (1, 3),
    "patience": (1.0, 5.0),
    "flush": (0.5, 2.0),
    "grace": (0.5, 2.0),
}
_OF_TRIALS = {
    "outbox": "max_outbox_messages",
    "queued samples": "max_queued_samples",
    "heartbeat": "heartbeat_seconds",
    "patience": "soft_end_patience_seconds",
    "flush": "datalog_flush_seconds",
    "grace": "datalog_grace_seconds",
}
_OF_STREAMS = {"window": "stream_window_bytes", "call outbox": "call_outbox_messages"}
_MANNERS = ("pads", "shrinks", "resets", "withholds", "leaves")
_NO_LIMITS_OF_TRIALS = ("window", "call outbox", "heartbeat")
_JOIN = methods_of(SERVICES[ServiceKind.CLIENT_ACTOR].descriptor())["RunTrial"]
_LIFECYCLE = SERVICES[ServiceKind.LIFECYCLE].descriptor().full_name
#: What a rude peer waits for at most.
_PATIENCE_SECONDS = 20.0


def _tight(rng: random.Random) -> Fault:
    target = rng.choice(list(LIMITS))
    return Fault(TIGHT, target=target, details={"most": rng.choice(LIMITS[target])})


def _late(rng: random.Random) -> Fault:
    return Fault(LATE, target=_trial(rng), details={"seconds": rng.choice([0.3, 1.0, 5.0, 19.9, 25.0])})


def _twice(rng: random.Random) -> Fault:
    return Fault(TWICE, at=round(rng.uniform(0, 12), 3), target=_trial(rng))


def _half(rng: random.Random) -> Fault:
    return Fault(HALF, target=_trial(rng), details={"sent": rng.choice([1, 2, 3, 5])})


def _hooks(rng: random.Random) -> Fault:
    if rng.random() < 0.5:
        return Fault("crash", at=round(rng.uniform(0, 2), 3), target=HOOKS, details={"power": rng.random() < 0.3})
    seconds = rng.choice([0.5, 4.0, 30.0])
    return Fault("partition", at=round(rng.uniform(0, 2), 3), target=HOOKS, details={"seconds": seconds})


def _rude(rng: random.Random) -> Fault:
    return Fault(RUDE, at=round(rng.uniform(0, 8), 3), target="orchestrator", details={"does": rng.choice(_MANNERS)})


def _trial(rng: random.Random) -> str:
    return f"trial-{rng.randrange(TRIALS)}"


RARE: tuple[Maker, ...] = (_tight, _tight, _tight, _late, _twice, _half, _hooks, _rude, _rude)


def hits_everybody(plan: FaultPlan) -> bool:
    """Tell whether any trial may be hit, though no fault is aimed at it: by a limit, or by hooks that do not answer."""
    return any(
        fault.target == HOOKS or (fault.name == TIGHT and fault.target not in _NO_LIMITS_OF_TRIALS) for fault in plan
    )


def tightened(plan: FaultPlan, config: OrchestratorConfig, rpc: RpcConfig) -> tuple[OrchestratorConfig, RpcConfig]:
    """Return settings with the limits of a plan."""
    most = {fault.target: fault.details["most"] for fault in plan.named(TIGHT)}
    return replace(config, **_given(most, _OF_TRIALS)), replace(rpc, **_given(most, _OF_STREAMS))


def _given(most: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    return {name: most[limit] for limit, name in fields.items() if limit in most}


def inactivity(plan: FaultPlan, otherwise: int) -> int:
    """Return the seconds of inactivity that trials are allowed."""
    return next((int(fault.details["most"] or 0) for fault in plan.named(TIGHT, "inactivity")), otherwise)


async def client_calls(world: World, trial_id: str, calls: CallOpener) -> CallOpener:
    """Return how the client of a trial makes its call; it may be late, and it may close its side."""
    for fault in world.plan.named(LATE, trial_id):
        world.sometimes(f"fault: {LATE}")
        await trio.sleep(float(fault.details["seconds"] or 0))
    for fault in world.plan.named(HALF, trial_id):
        return _HalfClosing(calls, int(fault.details["sent"] or 1), world)
    return calls


class _HalfClosing(CallOpener):
    """Makes calls that close their side after some messages."""

    def __init__(self, opener: CallOpener, most_sent: int, world: World) -> None:
        self._opener = opener
        self._most_sent = most_sent
        self._world = world

    def call(self, method: Method, *, metadata: MetadataLike = (), **options: Any) -> Any:
        return _HalfClosed(self._opener.call(method, metadata=metadata, **options), self._most_sent, self._world)


class _HalfClosed:
    """A call of which only this many messages are sent; whoever made it does not know."""

    def __init__(self, call: Any, most_sent: int, world: World) -> None:
        self._call = call
        self._left = most_sent
        self._world = world

    async def __aenter__(self) -> _HalfClosed:
        await self._call.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        handled: bool | None = await self._call.__aexit__(kind, error, traceback)
        return handled

    async def send(self, one: Any) -> None:
        if not self._left:
            return
        await self._call.send(one)
        self._left -= 1
        if not self._left:
            self._world.sometimes(f"fault: {HALF}")
            await self._call.done_sending()

    def __aiter__(self) -> Any:
        return self._call.__aiter__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


async def join_twice(play: Play, fault: Fault, port: int) -> None:
    """Ask for a place that has been taken: that is refused, whatever becomes of who has it."""
    history = play.world.history
    while not any(event.who == "actor cat" and event.what == "observation" for event in history.of_trial(fault.target)):
        if play.closing or trio.current_time() > fault.at + _PATIENCE_SECONDS:
            return
        await trio.sleep(0.1)
    play.world.sometimes(f"fault: {TWICE}")
    wanted = ActorRunTrialOutput(state=CommunicationState.NORMAL, init_output=ActorInitialOutput(actor_name="cat"))
    async with play.network.host("intruder").channel("orchestrator", port, config=play.rpc) as channel:
        try:
            async with channel.call(_JOIN, metadata=[(TRIAL_ID, fault.target)]) as call:
                await call.send(wanted)
                first = await call.receive()
        except RpcError as error:
            play.world.sometimes(f"a place that is taken: {error.code.name}")
            return
    assert first is None or first.state == CommunicationState.END, (
        f"{fault.target}: cat's place was given twice: {first}"
    )


async def be_rude(play: Play, fault: Fault, port: int) -> None:
    """Speak HTTP/2 with the orchestrator, correctly, but as no library does."""
    does = str(fault.details["does"])
    with trio.move_on_after(_PATIENCE_SECONDS):
        try:
            stream = await play.network.host("rude").connect("orchestrator", port)
            async with stream:
                peer = RawPeer(stream)
                await peer.send(PREFACE, settings({4: 0} if does == "withholds" else {}))
                await _rudely(peer, does)
        except (trio.BrokenResourceError, OSError):
            return
    play.world.sometimes(f"{RUDE}: {does}")


async def _rudely(peer: RawPeer, does: str) -> None:
    asked = [(1, "Version"), (3, "WatchTrials"), (5, "GetTrialInfo"), (7, "Version")]
    for number, name in asked:
        head = request_headers(f"/{_LIFECYCLE}/{name}".encode())
        await peer.send(peer.headers(number, head), *_request(number, does))
    if does == "shrinks":
        for size in (1, 0, 1000, 3, 65535):
            await peer.send(settings({4: size}))
            await trio.sleep(0.2)
    if does in ("pads", "shrinks"):
        for number in (1, 5, 7):
            await peer.until_over(number)
            assert peer.answer(number).status in (0, None) or number == 5, peer.answer(number)
    elif does == "withholds":
        await trio.sleep(3)
    if does != "leaves":
        for number, _ in asked:
            await peer.send(frame(RST, 0, number, (8).to_bytes(4, "big")))
        await trio.sleep(0.5)


def _request(number: int, does: str) -> Iterable[bytes]:
    """Yield the frames of an empty request; of one that is reset, only half of it, with padding that takes credit."""
    if does == "resets":
        yield frame(DATA, PADDED, number, bytes([200]) + message(b"")[:3] + bytes(200))
        return
    if does == "pads":
        for byte in message(b""):
            yield frame(DATA, PADDED, number, bytes([255, byte]) + bytes(255))
        yield frame(DATA, PADDED | END_STREAM, number, bytes([10]) + bytes(10))
        return
    yield frame(DATA, END_STREAM, number, message(b""))
