"""Variables of the environment that are misspelt: who starts a command is told, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tests.cli.test_start_lines import MISSPELT, WARNING
from trio_cogment.cli.root import cli
from trio_cogment.cli.variables import INTERNAL, KNOWN, OF_WORKERS, PREFIXES, warnings


def variables_of(command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    for parameter in command.params:
        yield from [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or ()
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from variables_of(below)


def test_the_variables_of_flags_and_no_others_are_known() -> None:
    found = {name for name in variables_of(cli) if name.startswith(PREFIXES)}
    assert len(found) > 100
    assert found.union(OF_WORKERS, INTERNAL) == KNOWN
    assert list(warnings(found)) == []


def test_what_a_trainer_sets_for_its_workers_is_known() -> None:
    assert (
        list(warnings(["COGMENT_ORCHESTRATOR", "COGMENT_DATASTORE", "COGMENT_TOKEN", "TRIO_COGMENT_RUN_TOKEN"])) == []
    )


def test_what_is_like_one_of_ours_is_told_of() -> None:
    assert list(warnings(["HOME", "COGMENT_LOG_LEVEL", MISSPELT])) == [WARNING]
    assert list(warnings(["TRIO_COGMENT_STORAG"])) == [
        "TRIO_COGMENT_STORAG: no command knows this variable; did you mean TRIO_COGMENT_STORAGE?"
    ]
    for name, meant in {
        "COGMENT_ORCHESTRATOR_PORT": "COGMENT_LIFECYCLE_PORT",
        "TRIO_COGMENT_LOG_LEVEL": "COGMENT_LOG_LEVEL",
        "COGMENT_STORAGE": "TRIO_COGMENT_STORAGE",
    }.items():
        assert list(warnings([name])) == [f"{name}: no command knows this variable; did you mean {meant}?"]
    assert list(warnings(["COGMENT_FOO"])) == ["COGMENT_FOO: no command knows this variable"]
    assert list(warnings(["COGMENT_" + "Q" * 80])) == [f"COGMENT_{'Q' * 80}: no command knows this variable"]
