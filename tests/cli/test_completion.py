"""Completion in the shells themselves: keys are typed on a terminal, and what comes of them is run."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from tests.cli.process import PATIENCE_SECONDS, environment_variables, run_main
from trio_cogment import __version__
from trio_cogment.cli.commands import COMPLETION
from trio_cogment.cli.root import cli, run

SHELLS = ("bash", "zsh", "fish")
#: How each starts without anybody's configuration, and what it needs before the script.
START: dict[str, tuple[list[str], str]] = {
    "bash": (["--norc", "--noprofile", "-i"], 'eval "$(trio-cogment completion bash)"'),
    "zsh": (["-f", "-i"], 'autoload -Uz compinit; compinit -u -D; eval "$(trio-cogment completion zsh)"'),
    "fish": (["--no-config", "-i"], "trio-cogment completion fish | source"),
}
TAB = "\t"
#: Gives a program the terminal that it runs on, as a shell has it that a person uses.
_WITH_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


def completions(*words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the program answers to a shell that completes the last word."""
    monkeypatch.setenv(COMPLETION, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["trio-cogment", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with contextlib.suppress(SystemExit):
        run([])
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            if not found.hidden:
                yield from leaves(found, (*path, name))


def test_every_command_and_every_flag_is_completed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, command in leaves(cli):
        flags = completions(*path, "--", capsys=capsys, monkeypatch=monkeypatch)
        shown = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
        assert {name for option in shown for name in option.opts if name.startswith("--")} <= set(flags), path
        if isinstance(command, click.Group):
            names = completions(*path, "''", capsys=capsys, monkeypatch=monkeypatch)
            assert names == [name for (name,) in (child for child, _ in leaves(command) if len(child) == 1)], path


def test_values_are_completed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert completions("serve", "--log_level", "w", capsys=capsys, monkeypatch=monkeypatch) == ["warning"]
    assert completions("completion", "z", capsys=capsys, monkeypatch=monkeypatch) == ["zsh"]


def test_an_unknown_shell() -> None:
    output = run_main("completion", "csh")
    assert (output.code, "'csh' is not one of 'bash', 'zsh', 'fish'" in output.err) == (1, True)


def typed(shell: str, folder: Path, keys: Sequence[str], until: str) -> str:
    """Type into a shell on a terminal until something is shown; return all that was."""
    program = shutil.which(shell)
    assert program is not None, f"there is no {shell}; nox -s shells installs it"
    flags, prepare = START[shell]
    leader, follower = os.openpty()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_TERMINAL, program, *flags],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        cwd=folder,
        env=environment_variables(TERM="dumb", HOME=str(folder), PATH=path, COLUMNS="200"),
    )
    os.close(follower)
    shown = ""
    try:
        with open(leader, "rb+", buffering=0) as terminal:
            terminal.write(f"{prepare}; echo rea''dy\n".encode())
            for wanted, answer in (("ready", keys), (until, ["exit\n"])):
                while wanted not in shown:
                    shown += terminal.read(4096).decode(errors="replace")
                for key in answer:
                    terminal.write(key.encode())
            with contextlib.suppress(OSError):  # Linux says so when the other side is closed
                while data := terminal.read(4096):
                    shown += data.decode(errors="replace")
        process.wait(PATIENCE_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return shown


@pytest.mark.shells
def test_descriptions_with_commas_are_whole_in_fish() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"{START['fish'][1]}; complete -C 'trio-cogment client trial sta'"],
        capture_output=True,
        text=True,
        check=True,
        env=environment_variables(PATH=path),
        timeout=PATIENCE_SECONDS,
    )
    assert done.stdout == "start\tStart a trial, and print its id.\n"


@pytest.mark.shells
@pytest.mark.parametrize("shell", SHELLS)
def test_commands_and_flags_in_a_shell(shell: str, tmp_path: Path) -> None:
    typed(shell, tmp_path, ["trio-cogment vers", TAB, "--js", TAB, "\n"], f'{{"version": "{__version__}"}}')


@pytest.mark.shells
@pytest.mark.parametrize("shell", SHELLS)
def test_commands_of_commands_in_a_shell(shell: str, tmp_path: Path) -> None:
    keys = ["trio-cogment cli", TAB, "trial wat", TAB, "--hel", TAB, "\n"]
    typed(shell, tmp_path, keys, "Usage: trio-cogment client trial watch")


@pytest.mark.shells
@pytest.mark.parametrize("shell", SHELLS)
def test_paths_in_a_shell(shell: str, tmp_path: Path) -> None:
    (tmp_path / "recorded-trial").write_text("no trial")
    typed(shell, tmp_path, ["trio-cogment replay recor", TAB, "\n"], "trio-cogment: recorded-trial: ")
