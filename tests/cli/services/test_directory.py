"""A directory as a server process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from tests.cli.client.test_directory import PERMANENT, asked, registered
from tests.cli.process import PATIENCE_SECONDS, run, server
from tests.cli.test_configuration import settings_of
from trio_cogment.cli.services.directory import DirectoryServerSettings
from trio_cogment.cli.services.directory import directory as command

START = ("services", "directory", "--host=127.0.0.1", "--port=0")


async def test_a_process_keeps_registrations_and_never_registers_itself(tmp_path: Path) -> None:
    file, link = tmp_path / "state", tmp_path / "link"
    async with server(*START, f"--persistence_file={file}", "--registration_lag=0") as found:
        assert found.addresses[0][2] == "DirectorySP"
        with trio.fail_after(PATIENCE_SECONDS):
            while "]" not in found.out:
                assert found.process.stdout is not None
                found.out += (await found.process.stdout.receive_some()).decode()
        # What launch files wait for.
        assert re.findall(r"Listening \[port:(\d+)\]", found.out)[:1] == [str(found.port)]
        endpoint = f"--directory_endpoint=grpc://127.0.0.1:{found.port}"
        assert "[0] " in await asked("inquire", endpoint)
        service_id, _ = await registered(endpoint, *PERMANENT, "--type=other")
        link.symlink_to(file)
        for name in (file, link):
            output = await run(*START, f"--persistence_file={name}")
            who = f"in use by another directory (process {found.process.pid})"
            assert (output.code, output.out, output.err) == (
                1,
                "",
                f"trio-cogment: persistence file {file}: it is {who}. Stop that one, or name another file\n",
            )
        assert await found.stop() == 0, found.err
    async with server(*START, f"--persistence_file={link}") as found:
        endpoint = f"--directory_endpoint=grpc://127.0.0.1:{found.port}"
        assert f"[{service_id}]" in await asked("inquire", endpoint)
        await registered(endpoint, *PERMANENT, "--type=other", "--properties=second")
    assert link.is_symlink()
    assert "second" in file.read_text()
    output = await run(*START, f"--persistence_file={tmp_path}/no/file")
    assert output.err == f"trio-cogment: --persistence_file: {tmp_path}/no/file: there is no such folder\n"
    output = await run(*START, f"--persistence_file={tmp_path}")
    assert (output.code, output.err.count("\n")) == (1, 1)
    assert str(tmp_path) in output.err


def settings(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> DirectoryServerSettings:
    found = settings_of(monkeypatch, "run_directory", command, *arguments)
    assert isinstance(found, DirectoryServerSettings)
    return found


PREFIX = "COGMENT_DIRECTORY_"


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ((), {}, (0, False, False, False)),
        (("--registration_lag=3", "--load_balancing"), {}, (3, True, False, False)),
        (("--load_balancing", "--check_on_inquire=true", "--force_permanent=1"), {}, (0, True, True, True)),
        (("--load_balancing=false",), {f"{PREFIX}LOAD_BALANCING": "true"}, (0, False, False, False)),
        ((), {f"{PREFIX}REGISTRATION_LAG": "2", f"{PREFIX}FORCE_PERMANENT": "true"}, (2, False, False, True)),
        ((), {f"{PREFIX}CHECK_ON_INQUIRE": "1", f"{PREFIX}LOAD_BALANCING": ""}, (0, False, True, False)),
    ],
)
def test_its_rules_by_flag_and_variable(
    arguments: tuple[str, ...],
    variables: dict[str, str],
    expected: tuple[float, bool, bool, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = settings(monkeypatch, *arguments)
    rules = found.configuration.directory_server
    said = (rules.registration_lag_seconds, rules.load_balancing, rules.check_on_inquire, rules.force_permanent)
    assert said == expected
    assert found.port == 9005
    assert found.directory is None


@pytest.mark.parametrize(
    ("arguments", "expected"), [((), (0, 5)), (["--registration_lag=3"], (3, 0)), (["--registration_lag=0"], (0, 0))]
)
def test_the_lag_that_is_given_is_the_only_one(
    arguments: Sequence[str], expected: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = settings(monkeypatch, *arguments).configuration.directory_server
    assert (rules.registration_lag_seconds, rules.startup_lag_seconds) == expected


def test_a_flag_can_take_back_what_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("directory_server: {load_balancing: true, max_entries: 5}\n")
    rules = settings(monkeypatch, f"--config={file}").configuration.directory_server
    assert (rules.load_balancing, rules.max_entries) == (True, 5)
    rules = settings(monkeypatch, f"--config={file}", "--load_balancing=false").configuration.directory_server
    assert (rules.load_balancing, rules.max_entries) == (False, 5)


@pytest.mark.parametrize(
    ("arguments", "variable", "expected"),
    [
        ((), None, ".cogment-directory-data"),
        (("--persistence_file=",), None, ""),
        (("--persistence_file=a",), None, "a"),
        ((), "", ""),  # the one variable that says something when it is empty
        ((), "b", "b"),
        (("--persistence_file=a",), "", "a"),
    ],
)
def test_the_file_may_be_none(
    arguments: tuple[str, ...], variable: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(f"{PREFIX}PERSISTENCE_FILE", raising=False)
    if variable is not None:
        monkeypatch.setenv(f"{PREFIX}PERSISTENCE_FILE", variable)
    assert settings(monkeypatch, *arguments).file == expected
