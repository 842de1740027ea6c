"""Findings of a check, and findings as text."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from trio_cogment.base.records import record
from trio_cogment.cli.text import printable


class Level(enum.Enum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@record()
class Finding:
    """What a check has found.

    Attributes:
        level: how bad it is.
        what: was looked at.
        text: what it is like.
        advice: what to do about it; empty if it is well.
    """

    level: Level
    what: str
    text: str
    advice: str = ""

    def as_json(self) -> dict[str, str]:
        """Return it for programs."""
        return {"level": self.level.value, "what": self.what, "text": self.text, "advice": self.advice}


def ok(what: str, text: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(Level.OK, what, text)


def warn(what: str, text: str, advice: str) -> Finding:
    """Return a finding that may be what somebody wants, or not."""
    return Finding(Level.WARN, what, text, advice)


def fail(what: str, text: str, advice: str) -> Finding:
    """Return a finding with which something does not work."""
    return Finding(Level.FAIL, what, text, advice)


def lines(findings: Sequence[Finding]) -> list[str]:
    """Return findings as lines: how bad, what, and what it is like; what to do about it is on a line of its own."""
    width = max((len(finding.what) for finding in findings), default=0)
    shown = []
    for finding in findings:
        shown.append(f"{finding.level.value:4}  {finding.what.ljust(width)}  {finding.text}")
        if finding.advice:
            shown.append(f"{'':4}  {'':{width}}  -> {finding.advice}")
    return list(map(printable, shown))


def worst(findings: Iterable[Finding]) -> Level:
    """Return the worst level that there is."""
    levels = {finding.level for finding in findings}
    return next((level for level in (Level.FAIL, Level.WARN) if level in levels), Level.OK)
