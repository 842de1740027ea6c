"""Flags, variables and keys of version 0.2.0: command lines and files that were written for it still work."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import click
import pytest

from tests.cli.test_completion import leaves
from trio_cogment.cli.configuration import section_class
from trio_cogment.cli.root import cli

NAMES = json.loads(Path(__file__).with_name("names_of_0_2_0.json").read_text())
COMMANDS = {" ".join(path): command for path, command in leaves(cli)}


@pytest.mark.parametrize("command", NAMES["flags"])
def test_flags_have_their_other_names_and_their_variables(command: str) -> None:
    found: dict[str, set[str]] = {}
    for option in COMMANDS[command].params:
        if isinstance(option, click.Option):
            variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()
            found |= {flag: {*option.opts, *variables} for flag in option.opts}
    for flag, others in NAMES["flags"][command].items():
        assert {flag, *others.split()} <= found.get(flag, set()), flag


@pytest.mark.parametrize("section", NAMES["settings"])
def test_sections_have_their_keys(section: str) -> None:
    assert set(NAMES["settings"][section]) <= {field.name for field in fields(section_class(section))}
