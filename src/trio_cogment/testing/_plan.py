"""Faults as data: drawn from a seed, printed whole, and taken apart when a run fails."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        name: what it is, as the scenario understands it.
        at: when, in virtual seconds; 0 for what is wrong from the start.
        target: whom it hits.
        details: whatever else the scenario needs, by names that could be those of arguments.
    """

    name: str
    at: float = 0.0
    target: str = ""
    details: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.details:
            if not name.isidentifier() or name in ("name", "at", "target"):
                raise ValueError(f"details: expected names of their own, got {name!r}")

    def __str__(self) -> str:
        parts = [repr(self.name)]
        if self.at:
            parts.append(f"at={self.at!r}")
        if self.target:
            parts.append(f"target={self.target!r}")
        parts.extend(f"{name}={value!r}" for name, value in self.details.items())
        return f"Fault({', '.join(parts)})"


#: Makes one fault from a generator.
FaultMaker: TypeAlias = Callable[[random.Random], Fault]


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All faults of a run, in the order of their times.

    ``str(plan)`` is what `parse` reads, so that a printed plan can be put into a test as it is.
    """

    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "faults", tuple(sorted(self.faults, key=lambda fault: fault.at)))

    @classmethod
    def draw(cls, rng: random.Random, makers: Sequence[FaultMaker], count: int | tuple[int, int]) -> FaultPlan:
        """Draw a plan.

        Args:
            rng: decides; for example ``random.Random(f"{seed}/plan")``.
            makers: the kinds of faults there are; each fault is of one of them, all alike likely.
            count: how many faults, or from how many to how many.
        """
        number = count if isinstance(count, int) else rng.randint(*count)
        return cls(tuple(rng.choice(makers)(rng) for _ in range(number)))

    @classmethod
    def parse(cls, text: str) -> FaultPlan:
        """Read what `str` wrote.

        Raises:
            ValueError: the text is no plan.
        """
        try:
            expression = ast.parse(text.strip(), mode="eval").body
            faults = ast.literal_eval(_plain(expression))
        except (SyntaxError, TypeError, ValueError, IndexError) as error:
            raise ValueError(f"expected FaultPlan(Fault(...), ...), got {text!r}") from error
        return cls(tuple(_fault(dict(pairs)) for pairs in faults))

    def __str__(self) -> str:
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
        """Return a smaller plan that still fails: none of its faults can be left out, if `attempts` sufficed to see.

        Args:
            fails: runs a plan (with the same seed) and tells whether it fails.
            attempts: how often that may be asked.
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


def _plain(plan: ast.expr) -> ast.expr:
    """Turn calls into literals: the plan into a list of lists of pairs."""
    if not isinstance(plan, ast.Call):
        raise TypeError("FaultPlan(...)")
    rows: list[ast.expr] = []
    for fault in plan.args:
        if not isinstance(fault, ast.Call):
            raise TypeError("Fault(...)")
        pairs: list[ast.expr] = [ast.Tuple([ast.Constant("name"), fault.args[0]], ast.Load())]
        pairs.extend(ast.Tuple([ast.Constant(word.arg), word.value], ast.Load()) for word in fault.keywords)
        rows.append(ast.List(pairs, ast.Load()))
    return ast.List(rows, ast.Load())


def _fault(values: dict[str, Value]) -> Fault:
    name, at, target = values.pop("name"), values.pop("at", 0.0), values.pop("target", "")
    if not isinstance(name, str) or not isinstance(at, (int, float)) or not isinstance(target, str):
        raise ValueError(f"expected a fault's name, time and target, got {name!r}, {at!r}, {target!r}")
    return Fault(name, float(at), target, values)
