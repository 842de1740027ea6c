"""Writes the table of shares into `docs/limits.md`: which limits all callers meet together, and which part one has.

With `--check` it writes nothing and fails if the page is stale; `tests/config/test_limits.py` does the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from trio_cogment.config.limits import LIMITS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "limits.md"
BEGIN = "<!-- shares: written by tools/limits.py -->\n"
END = "<!-- end of shares -->\n"


def _share(text: str) -> str:
    """Return a share as it is shown: a setting, or words."""
    return text if " " in text else f"`{text}`"


def _lines() -> Iterator[str]:
    yield "| what | all together | one of them | counts for | given back by |"
    yield "|---|---|---|---|---|"
    for limit in LIMITS:
        yield f"| {limit.what} | `{limit.setting}` | {_share(limit.share)} | {limit.owner} | {limit.freed} |"


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
        sys.exit(f"{PAGE} is stale: run python tools/limits.py")
    PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
