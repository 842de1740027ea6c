"""The declarations of a project: actor classes, message types, and parameter files.

What reads files is imported when it is first used: most programs read none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_cogment.base.lazy_names import lazy_names as _lazy_names
from trio_cogment.sdk.spec._types import ActorClass as ActorClass
from trio_cogment.sdk.spec._types import Payload as Payload
from trio_cogment.sdk.spec._types import Spec as Spec
from trio_cogment.sdk.spec._types import decode as decode
from trio_cogment.sdk.spec._types import encode as encode

if TYPE_CHECKING:
    from trio_cogment.sdk.spec._params_file import declared_classes as declared_classes
    from trio_cogment.sdk.spec._params_file import load_params as load_params
    from trio_cogment.sdk.spec._params_file import read_params as read_params
    from trio_cogment.sdk.spec.project import load_spec as load_spec

_HOMES = {
    "declared_classes": "_params_file",
    "load_params": "_params_file",
    "load_spec": "project",
    "read_params": "_params_file",
}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES)
__all__ = [*sorted(_HOMES), "ActorClass", "Payload", "Spec", "decode", "encode"]  # noqa: PLE0604 RUF100  the names are texts
