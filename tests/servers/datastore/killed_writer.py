"""Writes into a database until it is killed; a line on stdout for each batch that was acknowledged.

Arguments: the database's path, a name for its trials, how many batches each of its trials gets at most, and `once` if a
batch that fails is not tried again; then there is a line that begins with `refused`.
"""

from __future__ import annotations

import sys
from functools import partial

import trio

from trio_cogment.base.errors import CogmentError
from trio_cogment.servers.datastore import _sqlite
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.servers.datastore.storage import TrialStore, Write
from trio_cogment.testing.conformance.trial_store import late, new_trial, sample

TRIALS = 4
BATCH = 20
#: A failing disk is not a reason to stop.
PAUSE_SECONDS = 0.001


def payload(tick_id: int) -> bytes:
    """Return what is in a sample: enough for a torn page to be seen."""
    return f"{tick_id},".encode() * (50 + tick_id % 300)


async def write(store: TrialStore, trial_id: str, batches: int, once: bool) -> None:
    await persist(store, [new_trial(trial_id)])
    for batch in range(batches):
        first = BATCH * batch
        writes: list[Write] = [sample(trial_id, first + one, payload=payload(first + one)) for one in range(BATCH)]
        done = await persist(store, [*writes, late(trial_id, first, 1.0)], once=once)
        print(*[] if done else ["refused"], trial_id, batch, flush=True)


async def persist(store: TrialStore, writes: list[Write], *, once: bool = False) -> bool:
    """Write until it is acknowledged; what fails is on stderr."""
    while True:
        try:
            await store.apply(writes)
        except CogmentError as error:
            print(error, file=sys.stderr, flush=True)
            if once:
                return False
            await trio.sleep(PAUSE_SECONDS)
        else:
            return True


async def main(path: str, name: str, batches: str, once: str = "") -> None:
    # Chunks are merged every now and then.
    _sqlite.MERGE_PAUSE_SECONDS, _sqlite.MERGED_WHEN_IDLE, _sqlite.MERGED_WHEN_BUSY = 0.02, 4, 4
    async with open_store(f"sqlite:{path}") as store:
        async with trio.open_nursery() as nursery:
            for number in range(TRIALS):
                nursery.start_soon(write, store, f"{name}/{number}", int(batches), bool(once))
        print("done", flush=True)


if __name__ == "__main__":
    trio.run(partial(main, *sys.argv[1:]))
