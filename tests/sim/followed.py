"""A datastore on a file, whose trials are followed closely: a sample is read as soon as it can be."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from tests.servers.datastore.harness import TRIALS
from tests.servers.datastore.stores import in_sqlite_inline
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import RetrieveSamplesRequest
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode
from trio_cogment.rpc import CallOpener
from trio_cogment.servers.datastore import Datastore, TrialStore, datastore_services
from trio_cogment.servers.datastore.storage import EndWrite, TrialEnd
from trio_cogment.testing import World
from trio_cogment.testing.conformance.trial_store import new_trial, sample

NAMES = ("a", "b", "c")
FOLLOWERS = 3
#: About as long as a transaction takes, in seconds, so that everything meets everything.
_PAUSES = (0.0, 0.0, 0.0005, 0.002, 0.01)


@dataclass
class Written:
    """What was written of a trial.

    Attributes:
        ticks: of its samples, in order.
        deleted: it was deleted before its end.
        begun: it is there.
        done: nothing more is written.
    """

    ticks: list[int] = field(default_factory=list)
    deleted: bool = False
    begun: trio.Event = field(default_factory=trio.Event)
    done: trio.Event = field(default_factory=trio.Event)


async def followed_closely(world: World) -> None:
    """Everyone who follows a trial gets all of its samples, or learns that it was deleted."""
    with TemporaryDirectory() as folder:
        async with (
            in_sqlite_inline(Path(folder), world.stream("threads"))()() as store,
            Datastore(store) as datastore,
            world.in_process(datastore_services(datastore)) as channel,
            trio.open_nursery() as nursery,
        ):
            for name in NAMES:
                written = Written()
                nursery.start_soon(_write, store, name, written, world.stream(f"writer {name}"), name=f"writer {name}")
                for number in range(FOLLOWERS):
                    rng = world.stream(f"follower {name} {number}")
                    inside = datastore if number else None
                    nursery.start_soon(
                        _follow, world, inside, channel, name, written, rng, name=f"follower {name} {number}"
                    )


async def _write(store: TrialStore, name: str, written: Written, rng: random.Random) -> None:
    await trio.sleep(rng.choice(_PAUSES))
    await store.apply([new_trial(name)])
    written.begun.set()
    count, left_open, deleted = rng.randint(1, 25), rng.random() < 0.2, rng.random() < 0.2
    while len(written.ticks) < count:
        first = len(written.ticks)
        ticks = range(first, min(count, first + rng.choice((1, 1, 1, 3))))
        ends = not left_open and not deleted and ticks.stop == count
        states = [TrialState.ENDED if ends and tick == count - 1 else TrialState.RUNNING for tick in ticks]
        written.ticks += ticks
        await store.apply([sample(name, tick, state=state) for tick, state in zip(ticks, states, strict=True)])
        await trio.sleep(rng.choice(_PAUSES))
    if deleted:
        written.deleted = True
        await store.delete([name])
    elif left_open:
        await store.apply([EndWrite(name, TrialEnd.ABNORMAL)])
    written.done.set()


async def _follow(
    world: World, inside: Datastore | None, channel: CallOpener, name: str, written: Written, rng: random.Random
) -> None:
    """Follow a trial, in this process or by a call."""
    await written.begun.wait()
    await trio.sleep(10 * rng.choice(_PAUSES))
    seen: list[int] = []
    gone = False
    try:
        if inside is None:
            await _by_call(channel, name, seen)
        else:
            async with inside.reading(RetrieveSamplesRequest(trial_ids=[name])) as pages:
                async for page in pages:
                    seen += [one.tick_id for one in page]
    except (NotFoundError, RpcError) as error:
        if isinstance(error, RpcError) and error.code is not StatusCode.NOT_FOUND:
            raise
        gone = True
    await written.done.wait()
    assert gone == written.deleted, f"{name}: deleted {written.deleted}, its follower was told so {gone}"
    expected = written.ticks[: len(seen)] if gone else written.ticks
    assert seen == expected, f"a follower of {name} got {seen}, and {written.ticks} were written"
    world.sometimes("deleted" if gone else "followed")


async def _by_call(channel: CallOpener, name: str, seen: list[int]) -> None:
    async with channel.call(TRIALS["RetrieveSamples"]) as call:
        await call.send(RetrieveSamplesRequest(trial_ids=[name]))
        await call.done_sending()
        async for reply in call:
            seen.append(reply.trial_sample.tick_id)
