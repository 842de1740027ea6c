"""Our own watches: no false alarm where none is needed, and nothing left behind."""

from __future__ import annotations

import trio
import trio.testing

from trio_cogment.datastore._watching import Watches


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
