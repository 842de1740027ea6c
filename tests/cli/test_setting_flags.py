"""Flags of settings: what they take, what is said of anything else, and where they win."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import click
import pytest

from tests.cli.process import run_main
from tests.cli.test_completion import leaves
from trio_cogment.base.config.declarations import Flag, settings_of
from trio_cogment.cli.configuration import SECTIONS, configuration_of, section_class, setting_options
from trio_cogment.cli.root import cli


@click.command()
@setting_options(
    "dm_env_rpc.max_worlds",
    "directory_server.registration_lag_seconds",
    "directory_server.load_balancing",
    "trainer.credits_enforced",
    "outgoing.allowed_networks",
)
def command() -> None:
    """Have some of them."""


def found(*arguments: str) -> tuple[object, ...]:
    with command.make_context("command", list(arguments)) as ctx:
        given = configuration_of(ctx)
    return (
        given.dm_env_rpc.max_worlds,
        given.directory_server.registration_lag_seconds,
        given.directory_server.load_balancing,
        given.trainer.credits_enforced,
        given.outgoing.allowed_networks,
    )


DEFAULTS = (4000, 0.0, False, True, ())


@pytest.mark.parametrize(
    ("argument", "place", "value"),
    [
        ("--max_worlds=7", 0, 7),
        ("--registration_lag=0.5", 1, 0.5),
        ("--load_balancing", 2, True),
        ("--load_balancing=true", 2, True),
        ("--load_balancing=0", 2, False),
        ("--credits=advisory", 3, False),
        ("--outgoing_allow=10.0.0.0/8, 192.168.0.1", 4, ("10.0.0.0/8", "192.168.0.1")),
    ],
)
def test_a_flag_gives_its_setting(argument: str, place: int, value: object) -> None:
    assert found() == DEFAULTS
    expected = list(DEFAULTS)
    expected[place] = value
    assert found(argument) == tuple(expected)


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--max_worlds=0", "expected 1 to 2147483647, got 0"),
        ("--max_worlds=x", "expected an integer, got 'x'"),
        ("--max_worlds=", "expected an integer, got ''"),
        ("--max_worlds=1.5", "expected an integer, got '1.5'"),
        ("--registration_lag=nan", "expected a number, got 'nan'"),
        ("--registration_lag=-1", "expected 0.0 to 1000000000.0, got -1.0"),
        ("--outgoing_allow=10.0.0.0/8,x", "expected a network such as 10.0.0.0/8, got 'x'"),
        ("--credits=none", "'none' is not one of 'enforced', 'advisory'."),
    ],
)
def test_anything_else_is_refused(argument: str, text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        found(argument)
    assert caught.value.message == text


def test_a_flag_and_its_variable_win_over_the_section_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("dm_env_rpc: {max_worlds: 3, max_peer_worlds: 2}\nmax_worlds: 0\n")
    output = run_main("services", "dm_env_rpc", f"--config={file}")
    assert output.err == f"trio-cogment: --max_worlds (from {file}, line 2): expected 1 to 2147483647, got 0\n"
    monkeypatch.setenv("COGMENT_DM_ENV_RPC_MAX_WORLDS", "9")
    assert found()[0] == 9
    assert found("--max_worlds=5")[0] == 5
    monkeypatch.setenv("COGMENT_DM_ENV_RPC_MAX_WORLDS", "")
    assert found() == DEFAULTS


FLAGS = {
    f"{section}.{name}": setting.flag
    for section in SECTIONS
    for name, setting in settings_of(section_class(section)).items()
    if setting.flag is not None
}


@pytest.mark.parametrize("name", FLAGS)
def test_every_declared_flag_is_one_of_a_command(name: str) -> None:
    flag: Flag = FLAGS[name]
    options = [
        option
        for _, each in leaves(cli)
        for option in each.params
        if isinstance(option, click.Option)
        if flag.name in option.opts and (option.envvar or "") == flag.variable
    ]
    assert options
    section, _, key = name.partition(".")
    default = next(field.default for field in fields(section_class(section)) if field.name == key)
    if isinstance(default, int | float) and not isinstance(default, bool) and not flag.text:
        assert all(f"The default is {default}." in (option.help or "") for option in options)
