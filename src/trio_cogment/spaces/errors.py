"""The error that names the place of a mistake within nested spaces and values."""

from __future__ import annotations

from typing import TypeAlias

from trio_cogment.base.errors import InvalidArgumentError

#: How to get from a nested space or value to one of its parts: keys and positions, the outermost first.
Path: TypeAlias = tuple[str | int, ...]

#: Nested deeper than this, a space or value is refused: protobuf's parsers end at 100 messages within each other, and
#: one level takes up to three.
MAX_DEPTH = 24


class SpaceError(InvalidArgumentError):
    """An array, a space or a value is not what was expected; the text says where, what was expected, and what came.

    Attributes:
        reason: what was expected there, and what came.
        path: where in the nested space or value it is.
        root: what is nested: "value" unless the caller knows better.
    """

    def __init__(self, reason: str, path: Path = (), root: str = "value") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path
        self.root = root

    def inside(self, *keys: str | int) -> SpaceError:
        """Return the error itself, after prepending to its path where the part is in the whole."""
        self.path = (*keys, *self.path)
        return self

    def of(self, root: str) -> SpaceError:
        """Return the error itself, after saying what is nested."""
        self.root = root
        return self

    def __str__(self) -> str:
        return f"{place(self.path, self.root)}: {self.reason}"


def place(path: Path, root: str) -> str:
    """Return a path as one writes it in Python: `value["arm"][2]`."""
    return root + "".join(f"[{key}]" if isinstance(key, int) else f'["{key}"]' for key in path)
