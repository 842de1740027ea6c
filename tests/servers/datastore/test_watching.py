"""Our own watches: no false alarm where none is needed, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from trio_cogment.base.host import Host, inline_runner
from trio_cogment.servers.datastore._watching import Watches
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.servers.datastore.storage import OutcomeWrite
from trio_cogment.testing.conformance.trial_store import get, new_trial


async def test_told_once(autojump_clock: trio.testing.MockClock) -> None:
    watches = Watches()
    with watches.open("a") as one, watches.open("a") as another, watches.open(None) as all_trials:
        watches.notify(["a", "b"], trials=False)
        watches.notify(["a"], trials=False)
        for watch in (one, another):
            await watch.changed()
            with trio.move_on_after(1) as scope:
                await watch.changed()
            assert scope.cancelled_caught
        with trio.move_on_after(1) as scope:
            await all_trials.changed()
        assert scope.cancelled_caught
        watches.notify(["b"], trials=True)
        await all_trials.changed()
        with trio.move_on_after(1) as scope:
            await one.changed()
        assert scope.cancelled_caught
    assert not vars(watches)["_of"]


@pytest.mark.parametrize("address", ["memory:", "sqlite:{}/a.db"])
async def test_who_watches_all_trials_is_told_how_one_has_ended(
    address: str, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_store(address.format(tmp_path), host=Host(runner=inline_runner)) as store:
        await store.apply([new_trial("a")])
        async with store.watch() as watch:
            await store.apply([OutcomeWrite("a", b"said")])
            with trio.fail_after(1):
                await watch.changed()
            assert (await get(store, "a")).outcome == b"said"
