"""Checks of the machine: Python, versions of what is needed, the clock, and how many descriptors there may be."""

from __future__ import annotations

import importlib.metadata
import itertools
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from trio_cogment._version import __version__
from trio_cogment.base.errors import install_command
from trio_cogment.cli.doctor.findings import Finding, fail, ok, warn

_DISTRIBUTION = "trio-cogment"
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*?)\s*(?:;\s*(.*))?$")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")
_CONDITION = re.compile(r"(>=|<=|==|!=|<|>)\s*([\w.]+)$")
#: A file may be this much younger than the clock says: other machines write to shared disks.
_CLOCK_SECONDS = 60.0
#: Every connection takes one, and databases some.
_FEW_DESCRIPTORS = 1024
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    ">": lambda one, other: one > other,
}


def python() -> Finding:
    """Tell which Python this is; an older one than is needed cannot even import this."""
    found = f"{platform.python_version()} on {platform.system()} {platform.release()} ({sys.executable})"
    return ok("python", found)


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, without zeros at its end; what comes behind them does not count."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    parts = [] if found is None else [int(part) for part in found[0].split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def satisfies(version: str, conditions: str) -> bool:
    """Tell whether a version satisfies all of some conditions, such as `>=1.2,<2`."""
    found = [_CONDITION.match(condition.strip()) for condition in conditions.split(",") if condition.strip()]
    return all(one is not None and _COMPARE[one[1]](numbers(version), numbers(one[2])) for one in found)


def versions(requires: Iterable[str] | None = None, installed: Callable[[str], str] | None = None) -> Iterator[Finding]:
    """Compare what is installed with what the package needs.

    Args:
        requires: the requirements of the package; by default, those of the installed one.
        installed: returns the version of a distribution, or raises `PackageNotFoundError`.
    """
    installed = installed or importlib.metadata.version
    if requires is None:
        try:
            requires = importlib.metadata.requires(_DISTRIBUTION) or []
        except importlib.metadata.PackageNotFoundError:
            yield warn("versions", f"{_DISTRIBUTION} is not installed", "install it with pip")
            return
    wrong: dict[str, list[str]] = {}
    count, extras = 0, set[str]()
    for requirement in requires:
        match = _REQUIREMENT.match(requirement)
        assert match is not None, requirement
        name, conditions, marker = match[1], match[2], match[3] or ""
        of_extra = _EXTRA.search(marker)
        needed_by = "" if of_extra is None else of_extra[1]
        extras |= {needed_by} - {""}
        count += of_extra is None
        try:
            version = installed(name)
        except importlib.metadata.PackageNotFoundError:
            wrong.setdefault(needed_by, []).append(f"{name} is missing")
            continue
        if not satisfies(version, conditions):
            wrong.setdefault(needed_by, []).append(f"{name} is {version}, expected {conditions}")
    if wrong.get(""):
        yield fail("versions", "; ".join(wrong[""]), f"python -m pip install --upgrade {_DISTRIBUTION}=={__version__}")
    else:
        there = [extra for extra in sorted(extras) if extra not in wrong]
        text = f"trio-cogment {__version__}; {count} packages that it needs; extras: {', '.join(there) or 'none'}"
        yield ok("versions", text)
    for extra in sorted(extras):
        outdated = [text for text in wrong.get(extra, []) if " is missing" not in text]
        if outdated:
            yield warn("versions", f"extra {extra}: {'; '.join(outdated)}", install_command(extra))


def clock(files: Iterable[Path], now: float | None = None) -> Finding:
    """Compare the clock with the times of files, which cannot have been written later than now.

    Args:
        files: those of the package and of the data; ones that do not exist do not count.
        now: the time, in seconds since the epoch; by default, the machine's.
    """
    now = time.time() if now is None else now
    times = {path: path.stat().st_mtime for path in itertools.chain([Path(__file__)], files) if path.exists()}
    newest = max(times, key=lambda path: times[path])
    text = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if times[newest] > now + _CLOCK_SECONDS:
        late = times[newest] - now
        advice = "set the clock, or run a time service: tokens, certificates and the order of samples depend on it"
        return fail("clock", f"{text}, but {newest} was written {late:.0f} s later", advice)
    return ok("clock", text)


def descriptors(limit: int | None = None) -> Finding:
    """Tell how many file descriptors a process may have.

    Args:
        limit: the limit; by default, this process's.
    """
    if limit is None:
        try:
            import resource  # not on every system
        except ImportError:
            return ok("descriptors", "this system has no limit to read")
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit == resource.RLIM_INFINITY:
            return ok("descriptors", "any number")
    text = f"{limit} at most; each connection takes one"
    if limit < _FEW_DESCRIPTORS:
        return warn("descriptors", text, f"ulimit -n {_FEW_DESCRIPTORS}, or LimitNOFILE= of the service")
    return ok("descriptors", text)
