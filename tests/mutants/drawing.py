"""Mutants of a package, drawn by a seed: this many of its sites, and at each one of what may stand there."""

from __future__ import annotations

import difflib
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

import libcst as cst

from tests.mutants.sites import Site, sites, variants

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "trio_cogment"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed module.

    Attributes:
        file: the module, below the package `trio_cogment`.
        scope: the function or class that is changed; empty for the module itself.
        lines: where that is evaluated.
        statement: the lines of the statement that it is in.
        operator: how it is changed.
        removed: the changed lines as they were, without the space around them.
        added: what stands in their place.
        source: the whole changed module.
    """

    file: str
    scope: str
    lines: range = field(compare=False)
    statement: range = field(compare=False)
    operator: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    source: str = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """What it is called in reports: it stays the same when lines above it come and go."""
        told = "\n".join([self.file, self.scope, self.operator, *self.removed, "->", *self.added])
        return hashlib.blake2b(told.encode(), digest_size=4).hexdigest()

    def diff(self) -> str:
        """Return how the module differs from the one in the source."""
        before = (SOURCE / self.file).read_text().splitlines()
        lines = list(difflib.unified_diff(before, self.source.splitlines(), lineterm="", n=2))[2:]
        return "\n".join([f"{self.file} {self.scope or '(module)'}: {self.operator} [{self.name}]", *lines])


def draw(package: str, count: int, seed: str, within: str = "") -> list[Mutant]:
    """Draw mutants of a package, each at a site of its own; fewer only if it has no more.

    Args:
        package: which.
        count: how many.
        seed: of the draw.
        within: only of modules whose path below `trio_cogment` has this in it.
    """
    rng = random.Random(f"{seed}/{package}")
    modules = {path: _Module(path) for path in sorted((SOURCE / package).rglob("*.py")) if not _generated(path)}
    places = [(module, site) for module in modules.values() for site in module.sites]
    rng.shuffle(places)
    drawn: dict[str, Mutant] = {}
    for module, site in places:
        if within not in module.file:
            continue
        if len(drawn) == count:
            break
        mutants = list(module.mutants(site))
        if mutants:
            mutant = rng.choice(mutants)
            drawn.setdefault(mutant.name, mutant)
    return list(drawn.values())


def _generated(path: Path) -> bool:
    return path.name.endswith("_pb2.py") or "_protos" in path.parts


class _Module:
    def __init__(self, path: Path) -> None:
        self.file = path.relative_to(SOURCE).as_posix()
        self.source = path.read_text()
        self.tree, self.sites = sites(self.source)
        self.code = compile(self.source, self.file, "exec", dont_inherit=True)

    def mutants(self, site: Site) -> Iterator[Mutant]:
        """Yield the mutants of a site: Python, and not the same program in other words."""
        for operator, node in variants(site):
            changed = self.tree.deep_replace(site.node, node)
            assert isinstance(changed, cst.Module)
            source = changed.code
            try:
                code = compile(source, self.file, "exec", dont_inherit=True)
            except SyntaxError:
                continue
            if not same_program(self.code, code):
                removed, added = _changed_lines(self.source, source)
                yield Mutant(self.file, site.scope, site.lines, site.statement, operator, removed, added, source)


def same_program(one: CodeType, other: CodeType) -> bool:
    """Tell whether two pieces of code do the same; the lines they stand on do not matter."""
    return _own(one) == _own(other) and all(
        same_program(*pair) for pair in zip(nested(one), nested(other), strict=True)
    )


def same_own(one: CodeType, other: CodeType) -> bool:
    """Tell whether two pieces of code do the same, but for the functions and classes in them."""
    return _own(one) == _own(other)


def nested(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    constants = [
        constant.co_qualname if isinstance(constant, CodeType) else (type(constant), repr(constant))
        for constant in code.co_consts
    ]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return (code.co_code, code.co_exceptiontable, constants, names, code.co_argcount, code.co_flags)


def _changed_lines(before: str, after: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    removed, added = [], []
    for line in list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]:
        if line.startswith("-"):
            removed.append(line[1:].strip())
        elif line.startswith("+"):
            added.append(line[1:].strip())
    return tuple(removed), tuple(added)
