"""The declarations of a project: actor classes, message types, and parameter files.

What reads files is imported when it is first used: most programs read none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trio_cogment.spec._types import ActorClass as ActorClass
from trio_cogment.spec._types import Payload as Payload
from trio_cogment.spec._types import Spec as Spec
from trio_cogment.spec._types import decode as decode
from trio_cogment.spec._types import encode as encode

if TYPE_CHECKING:
    from trio_cogment.spec._params_file import declared_classes as declared_classes
    from trio_cogment.spec._params_file import load_params as load_params
    from trio_cogment.spec._params_file import read_params as read_params
    from trio_cogment.spec.project import load_spec as load_spec

_HOMES = {
    "declared_classes": "_params_file",
    "load_params": "_params_file",
    "load_spec": "project",
    "read_params": "_params_file",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
