"""Writes the tables that pages have from the code: rights of roles, shares of limits, settings.

With `--check` it writes nothing and fails if a page is stale; tests do the same.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from trio_cogment.access.rights import ANONYMOUS, PAGE_RIGHTS, RIGHTS, Scope
from trio_cogment.access.roles import ROLE_TEXTS, Role
from trio_cogment.base.config.declarations import Range, Setting, settings_of
from trio_cogment.cli.configuration import SECTIONS, section_class
from trio_cogment.play import LobbyRules

TOOL = "tools/tables.py"
DOCS = Path(__file__).resolve().parent.parent / "docs"

#: The classes of settings, by the names of their sections; the rules of a lobby are in no file.
CLASSES: Mapping[str, Any] = {**{name: section_class(name) for name in SECTIONS}, "lobby": LobbyRules}

_CELLS = {Scope.ALL: "yes", Scope.OWN: "own", None: "-"}


def rights() -> Iterator[str]:
    """Yield which role may call what."""
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


def share_of(section: str, declared: Setting) -> str:
    """Return what one account may have of a limit that is shared: a setting with its section, or words."""
    assert declared.shared is not None
    share = declared.shared.share
    return share if " " in share or "." in share else f"{section}.{share}"


def shares() -> Iterator[str]:
    """Yield which limits all callers meet together, and which part of them one has."""
    yield "| what | all together | one of them | counts for | given back by |"
    yield "|---|---|---|---|---|"
    for section, kind in CLASSES.items():
        for name, declared in settings_of(kind).items():
            if (shared := declared.shared) is not None:
                share = share_of(section, declared)
                share = share if " " in share else f"`{share}`"
                yield f"| {shared.what} | `{section}.{name}` | {share} | {shared.owner} | {shared.freed} |"


def settings(section: str) -> Iterator[str]:
    """Yield the settings of a section of the configuration file."""
    kind = CLASSES[section]
    yield "| key | default | range | meaning |"
    yield "|---|---|---|---|"
    for field in fields(kind):
        declared: Setting = field.metadata["setting"]
        wins = f"; the flag `{declared.flag.name}` wins" if declared.flag is not None else ""
        cells = [f"`{field.name}`", _default(field.default), _range(declared.within, field.default)]
        yield f"| {' | '.join(cells)} | {declared.text}{wins} |"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value in (None, "", ()) else _number(value)


def _range(within: Range | None, default: object) -> str:
    if within is None:
        return "true, false" if isinstance(default, bool) else "texts" if isinstance(default, tuple) else "a text"
    least, most = within
    if most == math.inf:
        return "more than 0" if least else "0 or more"
    return f"{_number(least)} to {_number(most)}"


def _number(value: Any) -> str:
    return f"{value:g}" if value % 1 else str(int(value))


#: The pages, with their tables: the lines of each, by its name.
PAGES: Mapping[str, Mapping[str, Callable[[], Iterable[str]]]] = {
    "security.md": {"rights": rights},
    "limits.md": {"shares": shares},
    "configuration.md": {f"settings of {section}": partial(settings, section) for section in SECTIONS},
}


def with_tables(text: str, tables: Mapping[str, Callable[[], Iterable[str]]], tool: str = TOOL) -> str:
    """Return a page with its tables as they are now, each between its comments.

    Raises:
        ValueError: the page has no place for one.
    """
    for name, lines in tables.items():
        begin, end = f"<!-- {name}: written by {tool} -->\n", f"<!-- end of {name} -->\n"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise ValueError(f"expected the lines {begin.strip()} and {end.strip()}")
        text = before + begin + "".join(f"{line}\n" for line in lines()) + end + after
    return text


def stale(page: str) -> str | None:
    """Return a page as it should be; None if it is."""
    present = (DOCS / page).read_text()
    wanted = with_tables(present, PAGES[page])
    return None if present == wanted else wanted


def main() -> None:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a page is stale")
    arguments = parser.parse_args()
    for page in PAGES:
        wanted = stale(page)
        if wanted is None:
            continue
        if arguments.check:
            sys.exit(f"{page} is stale: run python {TOOL}")
        (DOCS / page).write_text(wanted)


if __name__ == "__main__":
    main()
