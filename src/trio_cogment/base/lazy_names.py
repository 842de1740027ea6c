"""Lazy names of a package: a public name's module is imported when the name is first used.

So a package offers its names in one place, and a program pays only for what it uses; an extra is needed only by what
uses it. A package says its names twice: in a table for Python, and as imports for type checkers
(`tests/test_public_names.py` compares them).
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # as type checkers know it; importing `typing` takes longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any


def lazy_names(
    package: str,
    namespace: dict[str, Any],
    homes: Mapping[str, str],
    *,
    extra_of: Callable[[str], str] | None = None,
    hidden: Collection[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose names are imported when they are first used.

    Args:
        package: the package's `__name__`.
        namespace: its `globals()`, which keeps what has been imported.
        homes: the module of each name: below the package, or from `trio_cogment` on for a name of another room; empty
            for a name that is itself a module of the package.
        extra_of: the extra that brings NumPy for a name, to be told where NumPy is missing.
        hidden: names that `__dir__` does not list.

    Raises:
        AttributeError: by `__getattr__`, for other names.
        MissingExtraError: by `__getattr__`, where a name needs NumPy and there is none.
    """

    def load(name: str) -> Any:
        home = homes[name]
        if not home:
            return importlib.import_module(f"{package}.{name}")
        module = home if home.startswith("trio_cogment.") else f"{package}.{home}"
        return getattr(importlib.import_module(module), name)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if extra_of is None:
            value = load(name)
        else:
            from trio_cogment.base.errors import needing

            with needing(extra_of(name)):
                value = load(name)
        namespace[name] = value
        return value

    def names() -> list[str]:
        return sorted({*namespace, *homes}.difference(hidden))

    return get, names
