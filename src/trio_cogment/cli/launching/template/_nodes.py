"""Nodes of a parsed template."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that is written down; None is `nil`."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Dot:
    """`.`, or `.NAME`, or `.NAME.NAME`: the data, or what is in them."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """`$x`, `$x.NAME`; `$` is the data of the whole template."""

    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """The name of a function."""

    name: str


@dataclass(frozen=True, slots=True)
class Chain:
    """`(pipeline)`, `(pipeline).NAME`."""

    pipeline: Pipeline
    names: tuple[str, ...] = ()


Operand: TypeAlias = Literal | Dot | Variable | Function | Chain


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands, each of which gets the result of the one before as its last argument.

    Attributes:
        commands: of each its operands, of which the first may be a function.
        targets: the variables that are set; of `range` up to two.
        declares: the variables are new ones (`:=`).
    """

    commands: tuple[tuple[Operand, ...], ...]
    targets: tuple[str, ...] = ()
    declares: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """`{{pipeline}}`: its value as text, or nothing if it sets a variable."""

    pipeline: Pipeline


class Block(enum.Enum):
    """The control structures."""

    IF = "if"
    WITH = "with"
    RANGE = "range"


@dataclass(slots=True)
class Control:
    """`{{if}}`, `{{with}}` or `{{range}}`, up to its `{{end}}`."""

    block: Block
    pipeline: Pipeline
    body: list[Node] = field(default_factory=list)
    otherwise: list[Node] = field(default_factory=list)


class Jump(enum.Enum):
    """What leaves a `range`, or a round of it."""

    BREAK = "break"
    CONTINUE = "continue"


Node: TypeAlias = str | Output | Control | Jump
