"""The seeds of the trials that this process has to do with: a seat that draws by lot draws by them.

Whoever starts a trial with a seed, or serves its environment, notes it here for as long as the trial lasts. So what is
drawn in a trial depends on its seed alone, and not on the trials that run beside it or ran before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

_Noted = dict[str, list[int]]
_noted: trio.lowlevel.RunVar[_Noted] = trio.lowlevel.RunVar("trio_cogment.rl seeds of trials")


def seed_of(trial_id: str) -> int | None:
    """Return the seed of a trial; None if it has none, or nobody in this process knows it."""
    return next(iter(_seeds().get(trial_id, ())), None)


@contextmanager
def noted_seed(trial_id: str, seed: int | None) -> Iterator[None]:
    """Note the seed of a trial for the time of the block; None: it has none.

    Several may do so for the same trial; it is forgotten when the last of them has left.
    """
    if seed is None:
        yield
        return
    seeds = _seeds()
    noted = seeds.setdefault(trial_id, [])
    noted.append(int(seed))
    try:
        yield
    finally:
        noted.remove(int(seed))
        if not noted:
            del seeds[trial_id]


def _seeds() -> _Noted:
    try:
        return _noted.get()
    except LookupError:
        seeds: _Noted = {}
        _noted.set(seeds)
        return seeds
