"""Writes the tables that pages have from the code: rights of roles, shares of limits, settings, flags.

With `--check` it writes nothing and fails if a page is stale; tests do the same. What a flag means is written by hand,
unless it is the flag of a setting: a row for a new one has its help, until somebody says more.
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

import click

from trio_cogment.access.rights import ANONYMOUS, PAGE_RIGHTS, RIGHTS, Scope
from trio_cogment.access.roles import ROLE_TEXTS, Role
from trio_cogment.base.config.declarations import Range, Setting, settings_of
from trio_cogment.cli.configuration import SECTIONS, section_class
from trio_cogment.cli.root import cli
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
    if value is None or value in ("", (), []):
        return "none"
    return _number(value) if isinstance(value, int | float) else str(value)


def _range(within: Range | None, default: object) -> str:
    if within is None:
        return "true, false" if isinstance(default, bool) else "texts" if isinstance(default, tuple) else "a text"
    least, most = within
    if most == math.inf:
        return "more than 0" if least else "0 or more"
    return f"{_number(least)} to {_number(most)}"


def _number(value: Any) -> str:
    return f"{value:g}" if value % 1 else str(int(value))


# Flags

#: The commands of servers, by the names of their tables; all of these have flags and variables in common.
_SERVERS = (
    "trial_datastore",
    "model_registry",
    "dm_env_rpc",
    "web_proxy",
    "trainer",
    "legacy_gateway",
    "directory",
)


def command_of(*path: str) -> click.Command:
    """Return a command by its path."""
    found: click.Command = cli
    for name in path:
        assert isinstance(found, click.Group)
        below = found.get_command(click.Context(found), name)
        assert below is not None, name
        found = below
    return found


def options_of(*path: str) -> dict[str, click.Option]:
    """Return the options of a command that are shown, by their names."""
    options = (option for option in command_of(*path).params if isinstance(option, click.Option))
    return {option.opts[0]: option for option in options if not option.hidden}


def variables_of(option: click.Option) -> list[str]:
    """Return the environment variables of an option; the first that is not empty counts."""
    given = option.envvar or []
    return [given] if isinstance(given, str) else list(given)


def _own_options(*path: str) -> dict[str, click.Option]:
    """Return what a server has beside the flags and variables that all servers have."""
    common = {
        name: {variable.replace("ORCHESTRATOR", "*") for variable in variables_of(option)}
        for name, option in options_of("serve").items()
        if name not in ("--archive_dir", "--persistence_file", "--durability", "--keep_trials", "--prometheus_port")
    }
    options = options_of(*path)
    service = variables_of(options["--port"])[0].removeprefix("COGMENT_").removesuffix("_PORT")
    return {
        name: option
        for name, option in options.items()
        if common.get(name) != {variable.replace(service, "*") for variable in variables_of(option)}
    }


def _options_of_environments() -> dict[str, click.Option]:
    others = options_of("participants").keys() | {name for name in options_of("serve") if name.startswith("--web")}
    both = options_of("rl", "serve") | options_of("rl", "openenv")
    return {name: option for name, option in both.items() if name not in others}


#: The options in each table of flags, by its name.
FLAGS: Mapping[str, Callable[[], dict[str, click.Option]]] = {
    "serve": lambda: options_of("serve") | options_of("services", "orchestrator"),
    **{name: partial(_own_options, "services", name) for name in _SERVERS},
    "participants": partial(_own_options, "participants"),
    "environments": _options_of_environments,
}


def flags(table: str) -> Iterator[str]:
    """Yield a table of flags."""
    present = _rows(table)
    options = FLAGS[table]()
    known = [name for name in present if name in options]
    yield "| flag | environment | default | meaning |"
    yield "|---|---|---|---|"
    for name in [*known, *(other for other in options if other not in present)]:
        yield f"| {' | '.join(_flag(table, name, options[name], present.get(name)))} |"


def _rows(table: str) -> dict[str, list[str]]:
    """Return the rows that the page has, by their flags."""
    page = (DOCS / "configuration.md").read_text()
    lines = page.partition(f"<!-- flags of {table}: ")[2].partition(f"<!-- end of flags of {table} -->")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]
    return {row[0].strip("`"): row for row in rows}


def _flag(table: str, name: str, option: click.Option, present: list[str] | None) -> list[str]:
    variables = ", then ".join(f"`{variable}`" for variable in variables_of(option)) or "-"
    section, key = getattr(option, "section", ""), getattr(option, "key", "")
    only = ""
    if table == "serve" and name not in options_of("services", "orchestrator"):
        only = "`serve` only: "
    elif table == "serve" and name not in options_of("serve"):
        only = "`services orchestrator` only: "
    declared = next((each for each in fields(CLASSES[section]) if each.name == key), None) if section else None
    if declared is not None and not declared.metadata["setting"].flag.text:
        meaning = f"{only}{declared.metadata['setting'].text} (`{section}.{key}`)"
        return [f"`{name}`", variables, _default(declared.default), meaning]
    if present is None:
        text = (option.help or "").rstrip(".")
        present = ["", "", "none", f"{text[:1].lower()}{text[1:]}"]
    given = option.to_info_dict()["default"]
    default = _default(given[0] if isinstance(given, list | tuple) and given else given)
    # A default may be explained: `0: no limit`; and "none" may be said in other words.
    explained = default == "none" or default in present[2]
    meaning = present[3] if present[3].startswith(only) else only + present[3]
    return [f"`{name}`", variables, present[2] if explained else default, meaning]


#: The pages, with their tables: the lines of each, by its name.
PAGES: Mapping[str, Mapping[str, Callable[[], Iterable[str]]]] = {
    "security.md": {"rights": rights},
    "limits.md": {"shares": shares},
    "configuration.md": {
        **{f"flags of {table}": partial(flags, table) for table in FLAGS},
        **{f"settings of {section}": partial(settings, section) for section in SECTIONS},
    },
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
