"""Writes into a storage; a line on stdout for each batch that was acknowledged, `ended` at the end.

Arguments: the address, a name for its trials, how many these are, and how many seconds it writes. Then it ends them,
or, if the seconds are 0, it writes one batch and waits to be killed.
"""

from __future__ import annotations

import sys
from functools import partial

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import UnavailableError
from trio_cogment.servers.datastore import TrialStore, open_store
from trio_cogment.servers.datastore.storage import Write
from trio_cogment.testing.conformance.trial_store import late, new_trial, sample

BATCH = 20


async def persist(store: TrialStore, writes: list[Write]) -> None:
    """Write until it is acknowledged, as a data log does."""
    while True:
        try:
            assert await store.apply(writes) == {}
        except UnavailableError as error:
            print(error, file=sys.stderr, flush=True)
            await trio.sleep(0.1)
        else:
            return


async def write(store: TrialStore, trial_id: str, seconds: float) -> None:
    """Write batches of one trial."""
    await persist(store, [new_trial(trial_id)])
    end, first = trio.current_time() + seconds, 0
    while True:
        writes: list[Write] = [
            sample(trial_id, tick, payload=bytes(tick % 300)) for tick in range(first, first + BATCH)
        ]
        await persist(store, [*writes, late(trial_id, first, 1.0)])
        first += BATCH
        print("written", trial_id, first, flush=True)
        if trio.current_time() >= end:
            break
    if seconds:
        await persist(store, [sample(trial_id, first, state=TrialState.ENDED)])
        print("ended", trial_id, first + 1, flush=True)
    else:
        await trio.sleep_forever()


async def main(address: str, name: str, trials: str, seconds: str) -> None:
    async with open_store(address) as store, trio.open_nursery() as nursery:
        for number in range(int(trials)):
            nursery.start_soon(write, store, f"{name}-{number}", float(seconds))


if __name__ == "__main__":
    trio.run(partial(main, *sys.argv[1:]))
