"""Looks up known advisories of what is installed with the package; `nox -s audit` runs it.

Those that are known and cannot be removed, because a dependency pins the version, are the table of `docs/security.md`,
which says of each why it is harmless here. Any other one makes the audit fail.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "security.md"
HEADING = "## Known advisories\n"
#: The exit code when nothing could be looked up.
UNREACHABLE = 3

_OWN = "trio-cogment"
_ID = re.compile(r"\b(?:CVE-\d{4}-\d+|GHSA(?:-\w{4}){3}|PYSEC-\d{4}-\d+)\b")
_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class Advisory:
    """A row of the table.

    Attributes:
        package: the dependency that has it.
        version: the one that is pinned.
        ids: the advisory's names.
        tests: which show that it is harmless here, as pytest names them.
    """

    package: str
    version: str
    ids: frozenset[str]
    tests: tuple[str, ...]


def advisories(page: str) -> list[Advisory]:
    """Read the table of the page.

    Raises:
        ValueError: it is not there, or a row is not like the others.
    """
    _, found, section = page.partition(HEADING)
    if not found:
        raise ValueError(f"expected the heading {HEADING.strip()!r}")
    lines = section.partition("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("|")][2:]  # without its head
    return [_row(line) for line in rows]


def _row(line: str) -> Advisory:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if len(cells) != _COLUMNS or not _ID.search(cells[1]):
        raise ValueError(f"expected dependency, advisory, why it is harmless, tests: {line}")
    package, version = cells[0].split()
    return Advisory(package, version, frozenset(_ID.findall(cells[1])), tuple(re.findall(r"`([^`]+)`", cells[3])))


def judge(report: Mapping[str, Any], known: list[Advisory]) -> list[str] | None:
    """Return what is wrong by a report of pip-audit, one finding each; None: it could look nothing up."""
    found = [one for one in report["dependencies"] if one["name"] != _OWN]
    skipped = [one for one in found if "skip_reason" in one]
    if len(skipped) == len(found):
        return None
    return [f"{one['name']}: {one['skip_reason']}" for one in skipped] + list(_unknown(found, known))


def _unknown(found: list[Mapping[str, Any]], known: list[Advisory]) -> Iterator[str]:
    for one in found:
        for each in one.get("vulns", ()):
            ids = {each["id"], *each["aliases"]}
            if not any(row.package == one["name"] and row.ids & ids for row in known):
                better = ", ".join(each["fix_versions"]) or "no version"
                yield f"{one['name']} {one['version']}: {', '.join(sorted(ids))}, mended in {better}"


def main() -> int:
    """Audit the packages in a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="site-packages of an environment that has the package")
    options = parser.parse_args()
    known = advisories(PAGE.read_text())
    command = ["-m", "pip_audit", "--path", options.folder, "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    findings = judge(json.loads(done.stdout), known) if done.stdout else None
    if findings is None:
        print(f"no advisory could be looked up: {(done.stderr or 'no dependency was found').strip()[-500:]}")
        return UNREACHABLE
    print("\n".join(findings) or f"no advisory but the {len(known)} in {PAGE.name}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
