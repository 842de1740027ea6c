"""The bar of a transfer: on a terminal, and nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.cli.client.test_model_registry import asked, registry
from tests.cli.process import PATIENCE_SECONDS, Output, environment_variables
from trio_cogment.cli.client.transfer import progress

DATA = b"weights " * 500_000
#: Go to the beginning of the line, and erase it.
ERASED = "\r\x1b[1A\x1b[2K"


def on_a_terminal(*arguments: str) -> Output:
    """Run a command of the registry's client with a terminal for stderr; `err` is all that was written there."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_cogment", "client", "model_registry", *arguments],
        env=environment_variables(TERM="xterm"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:
        pass  # that is how a terminal ends
    finally:
        os.close(ours)
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return Output(process.returncode, out.decode(), shown.decode())


async def test_a_terminal_gets_a_bar_that_goes_away(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(DATA)
    async with registry(tmp_path) as endpoint:
        for command, arguments, said in (
            ("put", [f"--file={source}"], f"version 1 of m: {len(DATA)} bytes, archived"),
            ("get", [f"--file={target}"], f"version 1 of m: {len(DATA)} bytes"),
            ("get", [f"--file={target}", "--console_output=json"], f"version 1 of m: {len(DATA)} bytes"),
        ):
            with trio.fail_after(PATIENCE_SECONDS):
                output = await trio.to_thread.run_sync(on_a_terminal, command, "m", endpoint, *arguments)
            assert output.code == 0, output.err
            # What is a result is on standard output alone.
            assert (json.loads(output.out)["message"] if "json" in arguments[-1] else output.out.rstrip()) == said
            assert f"{command} " in output.err
            assert ("  0%" in output.err, "100%" in output.err) == (True, True)
            assert output.err.endswith(ERASED)
        assert target.read_bytes() == DATA
        # A failure has its line to itself.
        with trio.fail_after(PATIENCE_SECONDS):
            output = await trio.to_thread.run_sync(on_a_terminal, "get", "other", endpoint, f"--file={target}")
        assert (output.code, output.out) == (1, "")
        assert output.err == "trio-cogment: NOT_FOUND: model_id: there is no model 'other'\r\n"


async def test_without_a_terminal_there_is_none(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(DATA)
    async with registry(tmp_path) as endpoint:
        await asked("put", endpoint, "m", f"--file={source}")
        done = await trio.run_process(
            [sys.executable, "-m", "trio_cogment", "client", "model_registry", "get", "m", endpoint],
            env=environment_variables(TERM="xterm"),
            capture_stdout=True,
            capture_stderr=True,
        )
    assert done.stdout == DATA
    assert done.stderr.decode() == f"version 1 of m: {len(DATA)} bytes\n"


@pytest.mark.parametrize("total", [0, 10, None])
def test_it_is_called_all_the_same(total: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("put", total) as done:
        done(5)
        done(10)
    assert capsys.readouterr() == ("", "")
