"""The welcome of `serve`: where it listens, what it keeps where, what to try; a screen on a terminal; and a goodbye."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import trio

from tests.cli.process import NOTHING_ELSE, PATIENCE_SECONDS, Endless, environment_variables, server
from tests.cli.services.test_stop import controlled
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.cli.services.directory_flags import DirectorySettings
from trio_cogment.cli.services.kept import what_is_kept, where_trials_are
from trio_cogment.cli.services.screen import ScreenLog
from trio_cogment.cli.services.trial_datastore import StorageSettings
from trio_cogment.cli.services.welcome import Welcome
from trio_cogment.cli.trials_screen import page
from trio_cogment.cli.trials_view import Trials
from trio_cogment.sdk import actor_params, trial_params

HERE = "--host=127.0.0.1"
WIDTH = 80


@pytest.mark.parametrize(
    ("host", "port", "tried"),
    [
        ("127.0.0.1", 9000, ""),
        ("0.0.0.0", 9000, ""),
        ("::", 9001, " --endpoint=grpc://localhost:9001"),
        ("127.0.0.1", 9001, " --endpoint=grpc://127.0.0.1:9001"),
        ("fe80::1", 9000, " '--endpoint=grpc://[fe80::1]:9000'"),
    ],
)
def test_what_to_try_reaches_the_server(host: str, port: int, tried: str) -> None:
    lines = Welcome(services="a, b").lines(host, port, kept={"trials": "/x"}, notes={"dashboard": "http://h/"})
    assert lines == [
        "services   a, b",
        "trials     /x",
        "dashboard  http://h/",
        f"try        trio-cogment client trial watch{tried}",
        "stop       Control-C, or SIGTERM",
    ]


def test_what_is_kept_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = StorageSettings(file=Path("t.db"), memory_bytes=1)
    own = DirectorySettings(endpoint=None, file="names")
    assert what_is_kept(storage, Path("m"), own, Path("r")) == {
        "trials": f"{tmp_path}/t.db",
        "models": f"{tmp_path}/m",
        "directory": f"{tmp_path}/names",
        "runs": f"{tmp_path}/r",
    }
    elsewhere = DirectorySettings(endpoint=GrpcEndpoint("h", 1))
    assert what_is_kept(StorageSettings(address="of-plugin:x", memory_bytes=1), None, elsewhere, None) == {
        "trials": "of-plugin:x"
    }
    in_memory = DirectorySettings(endpoint=None)
    assert what_is_kept(StorageSettings(memory_bytes=1), None, in_memory, None) == {
        "trials": "in memory",
        "directory": "in memory",
    }
    assert what_is_kept(None, None, None, None) == {"trials": "not stored (--storage=none)"}


@pytest.mark.parametrize(
    ("storage", "datalog", "said"),
    [
        (StorageSettings(file=Path("/t.db"), memory_bytes=1), "cogment://discover", "/t.db"),
        (StorageSettings(memory_bytes=1), "cogment://discover", "in memory"),
        (StorageSettings(memory_bytes=1), "grpc://h:1", "stored by the data log at grpc://h:1"),
        (StorageSettings(memory_bytes=1), "", "not stored: datalog.endpoint is empty in their parameters"),
        (None, "", "not stored (--storage=none)"),
        (None, "grpc://h:1", "stored by the data log at grpc://h:1"),
    ],
)
def test_where_the_trials_of_a_server_are(storage: StorageSettings | None, datalog: str, said: str) -> None:
    assert where_trials_are(storage, datalog) == {"trials": said}
    if datalog == "cogment://discover":
        own = where_trials_are(storage, datalog, own_datalog=True)
        assert own == {"trials": "given to the data log of the participants"}


async def test_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    """Nine lines of 80 columns at most, the address once, and no word of services that register with themselves."""
    defaults = dict.fromkeys(NOTHING_ELSE, "") | {"COGMENT_DIRECTORY_PERSISTENCE_FILE": ".cogment-directory-data"}
    async with server("serve", HERE, "--port=0", variables=defaults, folder=tmp_path) as running:
        assert await running.parts() == "orchestrator, trial_datastore, model_registry, directory"
        await running.wait_serving()
        assert await running.stop(signal.SIGINT) == 0
        await running.read_rest()
    lines = running.out.splitlines()
    address = f"127.0.0.1:{running.port}"
    assert lines[0] == f"trio-cogment listening on {address}"
    kept = {"trials": ".cogment/trial_datastore.db", "models": ".cogment/model_registry"}
    kept["directory"] = ".cogment-directory-data"
    for name, file in kept.items():
        assert f"{name.ljust(9)}  {tmp_path / file}" in lines
        assert (tmp_path / file).exists()
    assert f"try        trio-cogment client trial watch --endpoint=grpc://{address}" in lines
    assert lines[-1] == "stopped; samples stored: 0"
    assert len(lines) <= 9
    assert all(len(line) <= WIDTH for line in lines if str(tmp_path) not in line)
    assert running.err == ""


async def test_the_goodbye_says_what_was_stored_and_what_was_ended(tmp_path: Path) -> None:
    endless = Endless()
    variables = {"TRIO_COGMENT_STORAGE": f"sqlite:{tmp_path}/t.db"}
    async with server("serve", HERE, "--port=0", variables=variables) as running, endless.served() as endpoint:
        async with controlled(running) as (controller, _):
            with trio.fail_after(PATIENCE_SECONDS):
                actors = [actor_params("here", "c", endpoint=endpoint)]
                params = trial_params(actors, environment_endpoint=endpoint, datalog_endpoint="cogment://discover")
                await endless.wait_running([await controller.start_trial(params)])
            assert await running.stop() == 0
        await running.read_rest()
    last = running.out.splitlines()[-1]
    found = re.fullmatch(r"stopped; running trials that were ended: 1; samples stored: (\d+)", last)
    assert found, last
    assert int(found[1]) >= 3


# On a terminal


def on_a_terminal(arguments: list[str], folder: Path, until: str) -> str:
    """Run a command on a terminal of 80 columns until it has written something, then stop it; return all it wrote."""
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_cogment", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        cwd=folder,
        env=environment_variables(**dict.fromkeys(NOTHING_ELSE, ""), TERM="xterm"),
    )
    os.close(follower)
    written = b""
    with open(leader, "rb", buffering=0) as terminal:
        try:
            while data := terminal.read(4096):
                written += data
                if until.encode() in written:
                    process.send_signal(signal.SIGINT)
                    until = "\0"
        except OSError:
            pass  # Linux says so when the other side is closed
    assert process.wait(PATIENCE_SECONDS) == 0
    return written.decode()


def test_a_screen_on_a_terminal(tmp_path: Path) -> None:
    """It is drawn in place, so that each thing is there once, and stays when the server has gone."""
    written = on_a_terminal(["serve", HERE, "--port=0"], tmp_path, "0 running, 0 ended")
    assert set(re.findall(r"\x1b\[[0-9;]*[a-zA-Z]", written)) == {"\x1b[9A", "\x1b[J"}
    last = written.rpartition("\x1b[J")[2].splitlines()
    assert last[0].startswith("trio-cogment listening on 127.0.0.1:")
    assert last[1].startswith("services   orchestrator, ")
    assert last[-2:] == ["0 running, 0 ended", "stopped; samples stored: 0"]


def test_a_page_fits_the_terminal_and_keeps_where_it_listens() -> None:
    header = [f"line {number}" for number in range(8)]
    for height in range(2, 40):
        for troubles in ([], ["x" * 200, "機械" * 60]):
            lines = page(header, Trials(), troubles, width=40, height=height)
            assert len(lines) < height
            assert lines[0] == "line 0"
            assert all(len(line) <= 39 for line in lines)
    full = page(header, Trials(), ["last warnings", "a warning"], width=40, height=24)
    assert full == [*header, "", "0 running, 0 ended", "", "last warnings", "a warning"]


@pytest.mark.parametrize(("level", "shown"), [(logging.INFO, ["bad"]), (logging.DEBUG, ["fine", "bad"])])
def test_the_screen_shows_what_goes_wrong_or_all_if_it_is_asked_to(level: int, shown: list[str]) -> None:
    log, root = ScreenLog(logging.Formatter("%(message)s")), logging.getLogger()
    before = root.level
    root.setLevel(level)
    try:
        for number, text in ((logging.INFO, "fine"), (logging.WARNING, "bad")):
            log.handle(logging.LogRecord("x", number, __file__, 1, text, None, None))
    finally:
        root.setLevel(before)
    assert log.taken().decode().splitlines() == shown
    assert log.taken() == b""
    [trouble] = log.troubles
    assert trouble.endswith(" WARNING bad")
    assert log.summary() == ["last warnings", trouble]
