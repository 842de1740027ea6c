"""Command lines that are read without click: as click reads them, and not at all where click might refuse."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_cogment.cli import options, plain
from trio_cogment.cli.announced import DATASTORE_SERVICES, DIRECTORY_SERVICES, REGISTRY_SERVICES, orchestrator_parts
from trio_cogment.cli.plain import COMMANDS, Plan, planned
from trio_cogment.cli.root import cli, run
from trio_cogment.cli.services import (
    directory,
    directory_flags,
    model_registry,
    orchestrator,
    services,
    trial_datastore,
)
from trio_cogment.cli.services.settings import ServerSettings
from trio_cogment.cli.services.start import Application
from trio_cogment.service_names import LOG_EXPORTER
from trio_cogment.services import SERVICES, ServiceKind

NAMES = list(COMMANDS)


def options_of(name: tuple[str, ...]) -> dict[str, click.Option]:
    """Return the flags of a command, as click knows them."""
    command: click.Command | None = cli
    for part in name:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), part)
    assert command is not None
    found = [option for option in command.params if isinstance(option, click.Option)]
    assert all(option.opts[0].startswith("--") for option in found)
    return {option.opts[0].removeprefix("--"): option for option in found}


def choices(option: click.Option) -> set[str]:
    return set(option.type.choices) if isinstance(option.type, click.Choice) else set()


def limits(option: click.Option) -> tuple[float | None, float | None]:
    return (option.type.min, option.type.max) if isinstance(option.type, click.IntRange) else (None, None)


def is_count(option: click.Option) -> bool:
    if option.callback is orchestrator._as_count:
        return True
    low, high = limits(option)
    return low == 0 and high is not None and high >= 10**plain._MOST_DIGITS - 1


def is_positive(option: click.Option) -> bool:
    low, high = limits(option)
    return low == 1 and high is not None and high >= 10**plain._MOST_DIGITS - 1


def is_text(option: click.Option) -> bool:
    return option.type is click.STRING and option.callback in (None, directory_flags._file)


#: What is checked without click -> what click's option is then.
KINDS: dict[Any, Callable[[click.Option], bool]] = {
    plain._is_port: lambda option: option.callback is options._as_port,
    plain._is_hosts: lambda option: option.callback is options.as_list and option.multiple,
    plain._is_count: is_count,
    plain._is_positive: is_positive,
    plain._is_boolean: lambda option: option.type is click.BOOL and not option.is_flag and option.flag_value == "true",
    plain._is_level: lambda option: choices(option) == {"trace", "debug", "info", "warning", "error", "off"},
    plain._is_format: lambda option: choices(option) == {"text", "json"},
    plain._is_durability: lambda option: choices(option) == {"full", "batch"},
    plain._is_open: lambda option: choices(option) == {"open", "token"},
    plain._is_text: is_text,
    plain._is_path: lambda option: isinstance(option.type, options.FilePath),
    plain._is_archive: lambda option: isinstance(option.type, options.FilePath) and option.name == "archive_dir",
    plain._is_storage: lambda option: option.name == "storage" and option.type is click.STRING,
}


@pytest.mark.parametrize("name", NAMES, ids=" ".join)
def test_the_table_has_every_flag_of_the_command(name: tuple[str, ...]) -> None:
    found, table = options_of(name), COMMANDS[name].flags
    assert found.keys() == table.keys()
    for flag, option in found.items():
        names = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
        assert list(table[flag].variables) == names, flag
        check, default = table[flag].check, table[flag].default
        assert check is None or KINDS[check](option), flag
        theirs = option.default[0] if option.multiple and isinstance(option.default, list) else option.default
        assert default is None or default == str(theirs), flag
        assert check is None or option.multiple == (check is plain._is_hosts)


def test_the_table_has_every_service() -> None:
    names = [*services.list_commands(click.Context(services)), *services._aliases]
    slow = ("web_proxy", "proxy", "dm_env_rpc", "legacy_gateway", "trainer")
    built = [name for name in names if name not in slow]
    assert sorted(("services", name) for name in built) == sorted(name for name in COMMANDS if name[0] == "services")
    for alias, name in services._aliases.items():
        assert name in slow or COMMANDS["services", alias] is COMMANDS["services", name]


def test_the_names_are_those_of_the_services() -> None:
    def names(*kinds: ServiceKind) -> list[str]:
        return [SERVICES[kind].name for kind in kinds]

    assert list(DIRECTORY_SERVICES) == names(ServiceKind.DIRECTORY)
    assert list(REGISTRY_SERVICES) == names(ServiceKind.MODEL_REGISTRY)
    datalog, datastore = names(ServiceKind.DATALOG, ServiceKind.DATASTORE)
    assert list(DATASTORE_SERVICES) == [datalog, LOG_EXPORTER, datastore]
    _, found = orchestrator_parts(datastore=False, model_registry=False, directory=False, one_port=True)
    assert found == [names(ServiceKind.LIFECYCLE), names(ServiceKind.CLIENT_ACTOR)]


# Against click

Heard = list[tuple[ServerSettings, Application]]


def heard(arguments: list[str], variables: Mapping[str, str]) -> tuple[int, Heard]:
    """Return the exit code of a command that serves nothing, and what it would serve."""
    found: Heard = []

    def hear(settings: ServerSettings, application: Application) -> None:
        found.append((settings, application))

    with (
        mock.patch.dict(os.environ, variables, clear=True),
        mock.patch.object(click, "echo"),
        mock.patch.object(directory, "run_server", hear),
        mock.patch.object(orchestrator, "run_server", hear),
        mock.patch.object(trial_datastore, "run_server", hear),
        mock.patch.object(model_registry, "run_server", hear),
    ):
        return run(arguments), found


def check(arguments: list[str], variables: Mapping[str, str]) -> Plan | None:
    """Return the plan, if there is one; fail if click sees it in another way."""
    plan = planned(arguments, variables)
    if plan is None:
        return None
    code, found = heard(arguments, variables)
    assert code == 0
    [(settings, application)] = found
    assert (plan.hosts, plan.metrics_port) == (list(settings.hosts), settings.prometheus_port)
    name, services = application.announced
    assert (plan.name, plan.ports) == (name, list(application.ports))
    assert lists(plan.services) == lists(services)
    assert plan.draws == (application.welcome is not None)
    # Nothing comes before the announcement but the ports.
    assert [application.check, settings.status_file, settings.tls, settings.log.file] == [None] * 4
    return plan


def lists(items: Iterable[Iterable[str]]) -> list[list[str]]:
    return [list(some) for some in items]


#: Values of all kinds, right and wrong ones.
ODD = (
    *("0", "1", "00", "9000", "65535", "65536", "000009000", "-1", "+1", "1.5", "1_0", "²", "9" * 9, "9" * 10),
    *("true", "false", "True", "yes", "no", "t", " true", "none", " none", "./none", "none/", "None", "NONE"),
    *("", " ", ",", "-", "--", "--port", "=", "a=b", "127.0.0.1", "::1", "127.0.0.1,::1", "localhost, ::"),
    *("\udcff", "é"),
    *("memory:", "memory", "memory:x", "sqlite:", "sqlite:x", "sqlite:x ", "x:y", "grpc://d:1", "no/such/file", "/"),
    *("info", "INFO", "off", "loud", "json", "text", "full", "batch"),
)
VALUES = st.one_of(st.sampled_from(ODD), st.text(max_size=5), st.integers(0, 10**10).map(str))
WORDS = ("--help", "-h", "--nothing", "word", "--", "---port", "-port=1", "--por=1", "--version", "-")


@st.composite
def lines(draw: st.DrawFn) -> tuple[list[str], dict[str, str]]:
    """A command line and an environment, mostly plain ones."""
    name = draw(st.sampled_from(NAMES))
    flags = COMMANDS[name].flags
    plain_ones = sorted(flag for flag in flags if flags[flag].check is not None)
    arguments, variables = list(name), {}
    for _ in range(draw(st.integers(0, 4))):
        flag = draw(st.sampled_from(plain_ones) if draw(st.integers(0, 9)) else st.sampled_from(sorted(flags)))
        value = draw(_value(flags[flag]))
        written = draw(st.sampled_from(["equals", "equals", "apart", "bare", "variable"]))
        if written == "variable":
            variables.update(dict.fromkeys(flags[flag].variables[-1:], value))
        else:
            words = {"equals": [f"--{flag}={value}"], "apart": [f"--{flag}", value], "bare": [f"--{flag}"]}
            arguments += words[written]
    if not draw(st.integers(0, 9)):
        arguments.insert(draw(st.integers(1, len(arguments))), draw(st.sampled_from(WORDS)))
    return arguments, {key: value.replace("\0", "") for key, value in variables.items()}


#: Some values of each kind.
RIGHT: dict[Any, list[str]] = {
    plain._is_port: ["0", "9000", "65535", "0080"],
    plain._is_hosts: ["127.0.0.1", "::1, 127.0.0.1", "localhost", "a,,b "],
    plain._is_count: ["0", "7", "999999999"],
    plain._is_positive: ["1", "007", "999999999"],
    plain._is_boolean: ["true", "false"],
    plain._is_level: ["trace", "off"],
    plain._is_format: ["text", "json"],
    plain._is_durability: ["full", "batch"],
    plain._is_text: ["", "none", "a b"],
    plain._is_path: ["none", "a/b", "tests"],
    plain._is_archive: ["none", "a/b", "tests"],
    plain._is_storage: ["none", "memory:", "sqlite:x"],
}


def _value(flag: plain.Flag) -> st.SearchStrategy[str]:
    right = RIGHT.get(flag.check)
    return VALUES if right is None else st.one_of(st.sampled_from(right), st.sampled_from(right), VALUES)


@settings(max_examples=400, deadline=None)
@given(lines())
def test_what_is_planned_is_what_click_makes_of_it(line: tuple[list[str], dict[str, str]]) -> None:
    check(*line)


@pytest.mark.parametrize("name", [name for name in NAMES if name[-1] not in services._aliases], ids=" ".join)
def test_odd_values_of_every_flag_are_read_as_click_reads_them(name: tuple[str, ...]) -> None:
    for flag, entry in COMMANDS[name].flags.items():
        for value in ODD:
            check([*name, f"--{flag}={value}"], {})
            check([*name, f"xx{flag}={value}"], {})
            for variable in entry.variables:
                check(list(name), {variable: value})


@pytest.mark.parametrize("name", NAMES, ids=" ".join)
def test_plain_values_of_every_flag_are_planned(name: tuple[str, ...]) -> None:
    for flag, entry in COMMANDS[name].flags.items():
        for value in RIGHT.get(entry.check, []):
            assert check([*name, f"--{flag}={value}"], {}) is not None, flag
            if value:
                assert check([*name, f"--{flag}", value], {}) is not None, flag
            for variable in entry.variables:
                assert check(list(name), {variable: value}) is not None, variable
        if entry.check is plain._is_boolean:
            assert check([*name, f"--{flag}"], {}) is not None
            assert check([*name, f"--{flag}", "--host=::1"], {}) is not None


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        (["serve"], {}, (["127.0.0.1"], [9000, 9000], 0)),
        (["serve", "--host=a,b", "--host", "c"], {}, (["a", "b", "c"], [9000, 9000], 0)),
        (
            ["serve", "--port=1", "--port=2", "--prometheus_port=3"],
            {"PROMETHEUS_PORT": "4"},
            (["127.0.0.1"], [2, 2], 3),
        ),
        (["services", "directory"], {"COGMENT_DIRECTORY_PORT": "0"}, (["0.0.0.0"], [0], 0)),
        (["services", "orchestrator", "--actor_port=1"], {"TRIAL_LIFECYCLE_PORT": "2"}, (["0.0.0.0"], [2, 1], 0)),
        (["services", "datastore", "--port=5"], {"COGMENT_TRIAL_DATASTORE_PORT": "4"}, (["0.0.0.0"], [5], 0)),
        (["services", "registry"], {"COGMENT_MODEL_REGISTRY_PORT": ""}, (["0.0.0.0"], [9002], 0)),
    ],
)
def test_plans(arguments: list[str], variables: Mapping[str, str], expected: tuple[list[str], list[int], int]) -> None:
    plan = check(arguments, variables)
    assert plan is not None
    assert (plan.hosts, plan.ports, plan.metrics_port) == expected


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        ([], {}),
        (["services"], {}),
        (["services directory"], {}),
        (["status"], {}),
        (["services", "web_proxy"], {}),
        (["services", "--log_level=info", "directory"], {}),
        (["services", "directory"], {"_TRIO_COGMENT_COMPLETE": "bash_source"}),
        (["services", "directory", "--help"], {}),
        (["services", "directory", "--port"], {}),
        (["services", "directory", "--port=65536"], {}),
        (["services", "directory", "--host="], {}),
        (["services", "directory", "--registration_lag=-1"], {}),
        (["services", "directory", "--log_level=info"], {"COGMENT_LOG_LEVEL": "loud"}),
        (["services", "directory", "--log_file=x"], {}),
        (["services", "directory"], {"COGMENT_PRIVATE_KEY_FILE": "x"}),
        (["services", "directory"], {"TRIO_COGMENT_CONFIG": "x"}),
        (["serve"], {"COGMENT_WEB_PROXY_PORT": "1"}),
        (["serve", "--params=x"], {}),
        (["serve"], {"COGMENT_STATUS_FILE": "x"}),
        (["serve", "--storage=nothing"], {}),
        (["serve", "--archive_dir=./none"], {}),
        (["serve", "--directory_endpoint=grpc://d:1"], {}),
        (["serve", "--dm_env_rpc=x"], {}),
        (["services", "dm_env_rpc"], {}),
        (["serve", "--trainer=x"], {}),
        (["services", "trainer"], {}),
    ],
)
def test_what_click_has_to_decide(arguments: list[str], variables: Mapping[str, str]) -> None:
    assert planned(arguments, variables) is None


def test_a_folder_that_cannot_be_read_is_for_click(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert planned(["serve"], {}) is not None
    Path(".cogment/model_registry").mkdir(parents=True)
    assert planned(["serve"], {}) is not None
    monkeypatch.setattr(os, "access", lambda *_arguments: False)
    assert planned(["serve"], {}) is None
    code, found = heard(["serve"], {})
    assert (code, found) == (1, [])


@pytest.mark.parametrize(
    ("arguments", "locks"),
    [
        (("services", "directory", "--persistence_file=/a/b"), ["/a/b.lock", "/a/b"]),
        (("services", "directory", "--persistence_file="), []),
        (("services", "trial_datastore", "--file_storage=/a/b"), ["/a/b.lock", "/a/b"]),
        (("services", "trial_datastore"), []),
        (("services", "model_registry", "--archive_dir=/a"), ["/a/.lock", "/a"]),
        (("services", "orchestrator"), []),
        (
            ("serve", "--persistence_file=/a", "--storage=sqlite:/b", "--archive_dir=/c"),
            ["/a.lock", "/a", "/b.lock", "/b", "/c/.lock", "/c"],
        ),
        (
            ("serve", "--persistence_file=/a", "--storage=memory:", "--archive_dir=/c"),
            ["/a.lock", "/a", "/c/.lock", "/c"],
        ),
    ],
)
def test_the_locks_of_a_server_are_known(arguments: tuple[str, ...], locks: list[str]) -> None:
    plan = planned(arguments, {})
    assert plan is not None
    assert plan.locks == locks
