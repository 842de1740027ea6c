"""Trio's order of running tasks, from a seed. This is the only file of the package that touches Trio's internals.

Trio runs the tasks that are ready in batches, in an order that it draws from a generator of its own. Two names of
`trio._core._run` decide about it, and both are needed: `_r` is that generator; with `_ALLOW_DETERMINISTIC_SCHEDULING`
each batch is sorted by the age of its tasks before it is shuffled (without, it comes from the order of a set). What a
seed then does not decide is the order in which the *abort functions* of tasks with equal deadlines are called: ours
must not depend on it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import trio
from trio._core import _run as _trio_run

_FLAG = "_ALLOW_DETERMINISTIC_SCHEDULING"
_GENERATOR = "_r"


def check_trio(module: ModuleType = _trio_run) -> None:
    """Make sure that this version of Trio can be seeded.

    Raises:
        RuntimeError: it cannot; the text says what is missing.
    """
    flag, generator = getattr(module, _FLAG, None), getattr(module, _GENERATOR, None)
    if not isinstance(flag, bool) or not isinstance(generator, random.Random):
        raise RuntimeError(
            f"trio {trio.__version__} cannot be simulated: {module.__name__} has no {_FLAG} (a bool) or no "
            f"{_GENERATOR} (a random.Random). Use a version of trio that this version of trio-cogment was tested with."
        )


@contextmanager
def seeded_schedule(seed: int) -> Iterator[None]:
    """Make the runs of Trio within the block depend on the seed; put everything back afterwards."""
    check_trio()
    generator: random.Random = getattr(_trio_run, _GENERATOR)
    before = generator.getstate(), getattr(_trio_run, _FLAG)
    generator.seed(seed)
    setattr(_trio_run, _FLAG, True)
    try:
        yield
    finally:
        generator.setstate(before[0])
        setattr(_trio_run, _FLAG, before[1])
