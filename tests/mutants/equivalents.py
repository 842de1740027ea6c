"""Mutants that are the same program to everybody: `equivalents.toml` lists them, each with its reason."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.drawing import Mutant

LIST = Path(__file__).with_name("equivalents.toml")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """One of them: the fields of a mutant, and why nobody can tell it from the source."""

    file: str
    scope: str
    operator: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    reason: str

    @property
    def name(self) -> str:
        no_lines = range(0)
        return Mutant(
            self.file, self.scope, no_lines, no_lines, self.operator, self.removed, self.added, source=""
        ).name


def equivalents(path: Path = LIST) -> dict[str, Equivalent]:
    """Return them by their names."""
    listed = [
        Equivalent(
            entry["file"],
            entry["scope"],
            entry["operator"],
            tuple(entry["removed"].splitlines()),
            tuple(entry["added"].splitlines()),
            entry["reason"],
        )
        for entry in tomllib.loads(path.read_text()).get("equivalent", [])
    ]
    return {one.name: one for one in listed}
