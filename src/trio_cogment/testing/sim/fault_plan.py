"""Faults as data: drawn from a seed, printed in full, and reduced to a minimal plan when a run fails."""

from __future__ import annotations

import ast
import keyword
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Value: TypeAlias = str | int | float | bool | None

_VALUES = (str, int, float, bool, type(None))
#: Arguments of a fault that may be positional.
_POSITIONS = ("name", "at", "target")


@dataclass(frozen=True, slots=True, repr=False)
class Fault:
    """One fault. What it means is decided by the scenario.

    Attributes:
        name: which kind of fault it is.
        at: when, in virtual seconds; 0 for a fault that is there from the start.
        target: what it affects.
        details: whatever else the scenario needs; the names are identifiers.

    Raises:
        ValueError: a value could not be printed and read again, or the time is not a time of a run.
    """

    name: str
    at: float = 0.0
    target: str = ""
    details: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.target, str):
            raise ValueError(f"expected texts as name and target, got {self.name!r} and {self.target!r}")
        if not isinstance(self.at, (int, float)) or not 0 <= self.at < math.inf:
            raise ValueError(f"at: expected seconds from 0 on, got {self.at!r}")
        for name, value in self.details.items():
            if not name.isidentifier() or keyword.iskeyword(name) or name in (*_POSITIONS, "details"):
                raise ValueError(f"details: expected names of their own, got {name!r}")
            if type(value) not in _VALUES or (isinstance(value, float) and not math.isfinite(value)):
                raise ValueError(f"details: {name}: expected a text, a finite number, a bool or None, got {value!r}")

    def __repr__(self) -> str:
        parts = [repr(self.name)]
        if self.at:
            parts.append(f"at={self.at!r}")
        if self.target:
            parts.append(f"target={self.target!r}")
        parts.extend(f"{name}={value!r}" for name, value in self.details.items())
        return f"Fault({', '.join(parts)})"


#: Makes one fault from a generator.
FaultMaker: TypeAlias = Callable[[random.Random], Fault]


@dataclass(frozen=True, slots=True, repr=False)
class FaultPlan:
    """All faults of a run, in the order of their times.

    A printed plan (by `str` or `repr`) is text for `parse`: in quotes, it can be put into a test as it is.
    """

    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "faults", tuple(sorted(self.faults, key=lambda fault: fault.at)))

    @classmethod
    def draw(cls, rng: random.Random, makers: Sequence[FaultMaker], count: int | tuple[int, int]) -> FaultPlan:
        """Draw a plan.

        Args:
            rng: makes the draws; for example ``random.Random(f"{seed}/plan")``.
            makers: the kinds of faults there are; each fault is of one of them, with equal probability.
            count: how many faults, or from how many to how many.

        Raises:
            ValueError: there are no such numbers, or nothing to choose from.
        """
        least, most = (count, count) if isinstance(count, int) else count
        if not 0 <= least <= most:
            raise ValueError(f"count: expected a number from 0 on, or the least and the most, got {count}")
        if most and not makers:
            raise ValueError("makers: expected at least one, got none")
        number = count if isinstance(count, int) else rng.randint(*count)
        return cls(tuple(rng.choice(makers)(rng) for _ in range(number)))

    @classmethod
    def parse(cls, text: str) -> FaultPlan:
        """Read a printed plan, or one written by hand; a fault's positional arguments are its name, time and target.

        Raises:
            ValueError: the text is not a plan; it says what was expected.
        """
        try:
            plan = _call(ast.parse(text.strip(), mode="eval").body, "FaultPlan")
            if plan.keywords:
                raise ValueError("faults are given by position, each as Fault(...)")
            faults = tuple(_fault(_call(fault, "Fault")) for fault in plan.args)
        except (SyntaxError, TypeError, ValueError) as error:
            raise ValueError(f"expected FaultPlan(Fault(...), ...), got {text!r}: {error}") from error
        return cls(faults)

    def __repr__(self) -> str:
        return f"FaultPlan({', '.join(map(str, self.faults))})"

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.faults)

    def __len__(self) -> int:
        return len(self.faults)

    def named(self, name: str, target: str | None = None) -> list[Fault]:
        """Return the faults of a name, of all targets or of one."""
        return [fault for fault in self.faults if fault.name == name and target in (None, fault.target)]

    def without(self, number: int) -> FaultPlan:
        """Return the plan without one of its faults, counted from 0."""
        return FaultPlan(self.faults[:number] + self.faults[number + 1 :])

    def shrink(self, fails: Callable[[FaultPlan], bool], *, attempts: int = 200) -> FaultPlan:
        """Return a smaller plan that still fails: no single fault of it can be left out, unless `attempts` ran out.

        Args:
            fails: runs a plan (with the same seed) and tells whether it fails.
            attempts: how often `fails` may be called.
        """
        plan = self
        half = max(1, len(plan) // 2)
        while len(plan) and attempts > 0:
            smaller = None
            for start in range(0, len(plan), half):
                candidate = FaultPlan(plan.faults[:start] + plan.faults[start + half :])
                attempts -= 1
                if fails(candidate):
                    smaller = candidate
                    break
                if not attempts:
                    break
            if smaller is not None:
                plan, half = smaller, min(half, max(1, len(smaller)))
            elif half == 1:
                break
            else:
                half //= 2
        return plan


def _call(expression: ast.expr, name: str) -> ast.Call:
    if not isinstance(expression, ast.Call) or not isinstance(expression.func, ast.Name) or expression.func.id != name:
        raise ValueError(f"expected {name}(...), got {ast.unparse(expression)}")
    return expression


def _fault(call: ast.Call) -> Fault:
    if len(call.args) > len(_POSITIONS):
        raise ValueError(f"expected Fault({', '.join(_POSITIONS)}, detail=...), got {ast.unparse(call)}")
    given = [*zip(_POSITIONS, call.args, strict=False), *((word.arg, word.value) for word in call.keywords)]
    arguments: dict[str, Any] = {}
    for name, expression in given:
        if name is None or name in arguments:
            raise ValueError(f"expected each argument once, by its name, got {ast.unparse(call)}")
        arguments[name] = ast.literal_eval(expression)
    if "name" not in arguments:
        raise ValueError(f"expected a name, got {ast.unparse(call)}")
    name, at, target = arguments.pop("name"), arguments.pop("at", 0.0), arguments.pop("target", "")
    return Fault(name, at, target, arguments)
