"""The file of --config: what it may say, what wins over it, and how its faults are told."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, environment_variables, run_main, server
from trio_cogment.base import config as config_module
from trio_cogment.base.config import PlatformConfig
from trio_cogment.cli.configuration import READERS, SECTIONS, section_class
from trio_cogment.cli.configuration_file import load_configuration
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.serve import serve
from trio_cogment.cli.services.orchestrator import OrchestratorSettings, orchestrator

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "configuration.md"
FLAGS = {"lifecycle_port": False, "pre_trial_hooks": True, "log_level": False}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in set(os.environ) - set(environment_variables()):
        monkeypatch.delenv(name)


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def settings_of(monkeypatch: pytest.MonkeyPatch, function: str, command: click.Command, *arguments: str) -> object:
    """Return what a command would run this function of its module with."""
    found: list[object] = []
    assert command.callback is not None
    monkeypatch.setattr(sys.modules[command.callback.__module__], function, found.append)
    command.main(list(arguments), standalone_mode=False)
    return found[0]


def settings(monkeypatch: pytest.MonkeyPatch, command: click.Command, *arguments: str) -> OrchestratorSettings:
    found = settings_of(monkeypatch, "run_orchestrator", command, *arguments)
    assert isinstance(found, OrchestratorSettings)
    return found


def test_everything_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(
        tmp_path,
        """
lifecycle_port: 9100
actor_port: '9101'
host: ["::1", 127.0.0.1]
prometheus_port: 9102
pre_trial_hooks:
  - grpc://one:1
  - grpc://two:2
params:
log_level: debug
gc_frequency: 5
orchestrator:
  soft_end_patience_seconds: 1.5
  max_ended_trials: 7
  hook_timeout_seconds:
rpc: {max_send_message_bytes: 1000, keepalive_seconds: 0}
metrics:
""",
    )
    found = settings(monkeypatch, orchestrator, f"--config={path}")
    assert (found.lifecycle_port, found.actor_port, found.prometheus_port) == (9100, 9101, 9102)
    assert found.hosts == ["::1", "127.0.0.1"]
    assert found.pre_trial_hooks == ["grpc://one:1", "grpc://two:2"]
    assert found.params is None
    assert found.log.level == "debug"
    trials, rpc = found.configuration.orchestrator, found.configuration.rpc
    assert (trials.soft_end_patience_seconds, trials.max_ended_trials, trials.hook_timeout_seconds) == (1.5, 7, 60)
    assert trials.gc_frequency == 5
    assert (rpc.max_send_message_bytes, rpc.keepalive_seconds) == (1000, 0)


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "lifecycle_port: 9100\nactor_port: 9100\nprometheus_port: 9100\nlog_level: error\n")
    monkeypatch.setenv("TRIO_COGMENT_CONFIG", str(path))
    monkeypatch.setenv("TRIAL_ACTOR_PORT", "9200")
    monkeypatch.setenv("PROMETHEUS_PORT", "9200")
    monkeypatch.setenv("COGMENT_LOG_LEVEL", "")  # says nothing
    found = settings(monkeypatch, orchestrator, "--prometheus_port=9300")
    assert (found.lifecycle_port, found.actor_port, found.prometheus_port) == (9100, 9200, 9300)
    assert found.log.level == "error"
    assert found.log.form == "text"
    # The file itself: the flag wins over the variable, too.
    other = tmp_path / "other.yaml"
    other.write_text("lifecycle_port: 9400")
    found = settings(monkeypatch, orchestrator, f"--config={other}")
    assert found.lifecycle_port == 9400


VARIABLES = [
    ("lifecycle_port", "COGMENT_LIFECYCLE_PORT", "TRIAL_LIFECYCLE_PORT", "1", "2"),
    ("actor_port", "COGMENT_ACTOR_PORT", "TRIAL_ACTOR_PORT", "1", "2"),
    ("prometheus_port", "COGMENT_ORCHESTRATOR_PROMETHEUS_PORT", "PROMETHEUS_PORT", "1", "2"),
]


@pytest.mark.parametrize(("name", "variable", "legacy", "one", "two"), VARIABLES, ids=lambda value: value)
def test_variables_and_their_old_names(
    name: str, variable: str, legacy: str, one: str, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(legacy, two)
    assert getattr(settings(monkeypatch, orchestrator), name) == int(two)
    monkeypatch.setenv(variable, one)
    assert getattr(settings(monkeypatch, orchestrator), name) == int(one)
    monkeypatch.setenv(variable, "")
    assert getattr(settings(monkeypatch, orchestrator), name) == int(two)


def test_hooks_by_flag_and_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COGMENT_PRE_TRIAL_HOOKS", " grpc://a:1  grpc://b:2 ")
    assert settings(monkeypatch, serve).pre_trial_hooks == ["grpc://a:1", "grpc://b:2"]
    flags = ("--pre_trial_hooks=grpc://c:1,grpc://d:2", "--pre_trial_hooks", "grpc://e:3")
    assert settings(monkeypatch, serve, *flags).pre_trial_hooks == ["grpc://c:1", "grpc://d:2", "grpc://e:3"]


def test_a_name_that_is_a_flag_and_a_section_is_offered_once(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="expected one of ") as caught:
        load_configuration(written(tmp_path, "zzzzzz: 1"), {"web": False})
    offered = str(caught.value).partition("expected one of ")[2].split(", ")
    assert offered == sorted({"web", *SECTIONS})


def test_gc_frequency_says_nothing_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(monkeypatch, orchestrator).configuration.orchestrator.gc_frequency is None
    monkeypatch.setenv("COGMENT_GC_FREQUENCY", "10")
    assert settings(monkeypatch, orchestrator).configuration.orchestrator.gc_frequency == 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a", "line 1: the file: expected a mapping, got a list"),
        ("a: [", "line 1: not YAML: "),
        ("\nlifecycle_prt: 1", "line 2: the file: unknown key 'lifecycle_prt'; did you mean 'lifecycle_port'?"),
        ("config: x", "line 1: the file: unknown key 'config'"),
        ("log_level: {a: 1}", "line 1: log_level: expected one value, got a mapping"),
        ("log_level: [debug]", "line 1: log_level: expected one value, got a list"),
        ("pre_trial_hooks: [[a]]", "line 1: pre_trial_hooks[0]: expected one value, got a list"),
        ("orchestrator: 1", "line 1: orchestrator: expected a mapping, got '1'"),
        ("orchestrator:\n  patience: 1", "line 2: orchestrator: unknown key 'patience'"),
        ("orchestrator: {max_ended_trials: many}", "orchestrator.max_ended_trials: expected an integer, got 'many'"),
        ("orchestrator: {max_ended_trials: 1.5}", "orchestrator.max_ended_trials: expected an integer, got '1.5'"),
        ("rpc:\n  keepalive_seconds: no", "line 2: rpc.keepalive_seconds: expected a number, got 'no'"),
        ("rpc: {keepalive_seconds: nan}", "rpc.keepalive_seconds: expected a number, got 'nan'"),
        ("rpc:\n  max_pings: 3\n  max_resets: 0", "line 3: rpc.max_resets: expected 1 to 2147483647, got 0"),
        ("orchestrator: {farewell_seconds: -1}", "farewell_seconds: expected a number that is not negative, got -1"),
        ("metrics: {max_connections: 0}", "line 1: metrics.max_connections: expected more than 0"),
        ("orchestrator: {max_queued_samples: 0}", "line 1: orchestrator.max_queued_samples: expected more than 0"),
        ("orchestrator: {hook_timeout_seconds: 0}", "orchestrator.hook_timeout_seconds: expected more than 0"),
        ("orchestrator: {datalog_connect_timeout_seconds: 0}", "connect_timeout_seconds: expected more than 0"),
        ("orchestrator: {client_join_timeout_seconds: 0.0}", "client_join_timeout_seconds: expected more than 0"),
        ("orchestrator: {watch_queue_entries: 0}", "orchestrator.watch_queue_entries: expected more than 0"),
        ("rpc: {max_pings: 1, max_pings: 2}", "line 1: rpc: the key 'max_pings' is given twice"),
    ],
)
def test_faults_are_located(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(Failure) as caught:
        load_configuration(path, FLAGS)
    assert caught.value.message.startswith(f"--config: {path}: ")
    assert expected in caught.value.message
    assert "\n" not in caught.value.message


def test_a_bad_value_of_a_flag_is_located_too(tmp_path: Path) -> None:
    path = written(tmp_path, "log_level: info\nport: x\n")
    output = run_main("serve", f"--config={path}")
    assert output.code == 1
    expected = f"trio-cogment: --port (from {path}, line 2): expected a port from 0 to 65535, got 'x'"
    assert output.err.splitlines() == [expected]
    output = run_main("serve", "--config=/nowhere.yaml")
    assert output.err.splitlines() == ["trio-cogment: --config: /nowhere.yaml: No such file or directory"]


async def test_a_server_with_a_file(tmp_path: Path) -> None:
    status = tmp_path / "status"
    path = written(tmp_path, f"port: 0\nhost: 127.0.0.1\nstatus_file: {status}\nrpc: {{max_concurrent_streams: 3}}\n")
    with trio.fail_after(PATIENCE_SECONDS):
        async with server("serve", variables={"TRIO_COGMENT_CONFIG": str(path)}) as running:
            assert running.addresses[0][0] == "127.0.0.1"
            await running.wait_serving()
            assert status.read_text() == "IR"
            await running.stop()


def test_every_class_of_settings_is_a_section() -> None:
    classes = {getattr(config_module, name) for name in config_module.__all__ if name.endswith("Config")}
    classes.remove(PlatformConfig)  # it is made of the others
    assert set(map(section_class, SECTIONS)) == classes
    for kind in classes:
        assert {str(field.type) for field in dataclasses.fields(kind)} <= READERS.keys()


# The document


def rows(heading: str) -> dict[str, list[str]]:
    """Return the cells of the table below a heading, by the name in the first."""
    section = DOCUMENT.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("|") for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells}
