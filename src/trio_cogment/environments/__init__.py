"""Environments of Gymnasium, PettingZoo and dm_env as the environments of trials.

These libraries have one interface each, and all of them block: `step` computes, for microseconds or for seconds. A
trial wants messages, and its loop must not stand still. So there are three layers. An adapter (`gymnasium`,
`pettingzoo`, `dm_env`) makes every library look alike: `base.Environment`. An `Episode` turns that into payloads in and
out, still without anything to wait for. A host says where the calls are made: on Trio's own thread (a cheap
environment: no switch at all), in a thread, or in a process. `part` is the environment's participant over any of them.

Making an environment often costs more than an episode. So one that a trial has ended with goes back to a pool, and the
next trial with the same configuration gets it. What an environment returns is checked at every step, because an
observation that does not fit its space would otherwise be noticed by an actor elsewhere, or by nobody.

All of it needs NumPy, the extra `arrays`; Gymnasium and the others are imported when one of their environments is made.
"""

from __future__ import annotations

# Before any module of this package imports NumPy: this says what to install if it is missing.
from trio_cogment import spaces

__all__ = [
    "spaces",
]
