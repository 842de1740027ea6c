"""Writes the table of rights into `docs/security.md`: which role may call what.

With `--check` it writes nothing and fails if the page is stale; `tests/access/test_rights_page.py` does the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from trio_cogment.access.rights import ANONYMOUS, PAGE_RIGHTS, RIGHTS, Scope
from trio_cogment.access.roles import ROLE_TEXTS, Role

PAGE = Path(__file__).resolve().parent.parent / "docs" / "security.md"
BEGIN = "<!-- rights: written by tools/rights.py -->\n"
END = "<!-- end of rights -->\n"

_CELLS = {Scope.ALL: "yes", Scope.OWN: "own", None: "-"}


def _lines() -> Iterator[str]:
    for role, text in ROLE_TEXTS.items():
        yield f"- **{role.value}** {text}."
    yield ""
    columns = [ANONYMOUS, *Role]
    names = ["nobody known", *(role.value for role in Role)]
    yield f"| service | calls | {' | '.join(names)} |"
    yield f"|---|---|{'---|' * len(names)}"
    for service, methods in RIGHTS.items():
        grouped: dict[tuple[str, ...], list[str]] = {}
        for method, row in methods.items():
            cells = tuple(_CELLS[row.get(column)] for column in columns)
            grouped.setdefault(cells, []).append(method)
        for cells, calls in grouped.items():
            yield f"| {service} | {', '.join(calls)} | {' | '.join(cells)} |"
    for page, row in PAGE_RIGHTS.items():
        yield f"| [pages](web.md#pages) | {page} | {' | '.join(_CELLS[row.get(column)] for column in columns)} |"


def written(page: str) -> str:
    """Return the page with the table as it is now.

    Raises:
        ValueError: the page has no place for it.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE}: expected the lines {BEGIN.strip()} and {END.strip()}")
    return before + BEGIN + "".join(f"{line}\n" for line in _lines()) + END + after


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the page is stale")
    arguments = parser.parse_args()
    present = PAGE.read_text()
    wanted = written(present)
    if present == wanted:
        return
    if arguments.check:
        sys.exit(f"{PAGE} is stale: run python tools/rights.py")
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
