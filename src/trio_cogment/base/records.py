"""Records: frozen dataclasses with slots of which only `__init__` is compiled for each class.

`dataclasses` compiles six functions for a frozen class with slots. For the settings and descriptions that a server
makes a few of, that was a fifth of its start. What a frozen dataclass does, a record does: it compares and hashes by
its fields, shows them, and refuses changes; `fields`, `replace` and `asdict` know it. Making one takes longer, so what
is made for each message or tick is a dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(*, kw_only: bool = False) -> Callable[[_Class], _Class]:
    """Return a decorator that makes a class a record.

    Args:
        kw_only: the fields are given by name only.
    """

    def decorate(cls: _Class) -> _Class:
        for name, function in _SHARED.items():
            if name not in vars(cls):
                setattr(cls, name, function)
        made: Any = dataclass(repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
        checked: _Class = made
        return checked

    return decorate


def _compared(one: Any) -> tuple[Any, ...]:
    return tuple(getattr(one, each.name) for each in fields(one) if each.compare)


def _equal(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


@recursive_repr()
def _text(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _set_once(self: Any, name: str, value: object) -> None:
    if hasattr(self, name):  # else `__init__`, or what reads a pickle, is about to fill it
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_delete(_self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED: dict[str, Any] = {
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _text,
    "__setattr__": _set_once,
    "__delattr__": _refuse_delete,
}
