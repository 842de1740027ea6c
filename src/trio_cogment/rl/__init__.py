"""Reinforcement learning: trials as environments of the field's libraries, their environments as those of trials.

The names below are resolved when they are first used, so that each extra is needed only by what uses it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trio_cogment.rl.spec import RL_SPEC as RL_SPEC

#: The module of each public name, below `trio_cogment.rl`.
_HOMES = {
    "RL_SPEC": "spec",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
