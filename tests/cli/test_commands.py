"""Commands that end by themselves: what they print, and exit code 1 with one line for everything that is wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, environment_variables, run_main, server
from trio_cogment import __version__
from trio_cogment.cli import main
from trio_cogment.cli.commands import answered
from trio_cogment.cli.root import cli, run


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in set(os.environ) - set(environment_variables()):
        monkeypatch.delenv(name)


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command in this process that fails before it starts anything; return its one line."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    output = capsys.readouterr()
    assert (caught.value.code, output.out) == (1, "")
    (line,) = output.err.splitlines()
    return line.removeprefix("trio-cogment: ")


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


def test_no_word_of_any_help_is_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, set[str]] = {}
    for columns in ("200", "80"):
        monkeypatch.setenv("COLUMNS", columns)
        names[columns] = set()
        for path in commands(cli):
            assert run([*path, "--help"]) == 0
            names[columns] |= set(re.findall(r"\b[A-Z]+_[A-Z_]+\b|--[a-z_]+", capsys.readouterr().out))
    assert len(names["200"]) > 100
    assert names["80"] == names["200"]


ALL = [pytest.param(path, id=" ".join(path) or "trio-cogment") for path in commands(cli)]


@pytest.mark.parametrize("path", ALL)
def test_help_is_80_columns_wide_and_no_sentence_is_cut(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    assert not re.search(r"\.\.\.$", shown.partition("\nCommands:\n")[2], re.MULTILINE)


@pytest.mark.parametrize("path", ALL)
def test_help_names_variables_and_defaults(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each flag has a sentence, its variables, and what holds without it."""
    monkeypatch.setenv("COLUMNS", "2000")
    assert run([*path, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for option in command_at(path).params:
        if not isinstance(option, click.Option) or option.hidden:
            continue
        assert option.help, option.opts
        assert option.help[0].isupper() or option.help[0] == "-", option.help
        assert option.help.endswith("."), option.help
        names = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
        assert all(name in shown for name in names), option.opts
        # Without a value there is no flag, no text, or a default that the sentence tells.
        if option.default not in (None, False, "", ()) and not repr(option.default).startswith("Sentinel"):
            assert option.show_default or "default" in option.help.lower(), option.opts


def command_at(path: tuple[str, ...]) -> click.Command:
    found: click.Command = cli
    for name in path:
        assert isinstance(found, click.Group)
        command = found.get_command(click.Context(found), name)
        assert command is not None
        found = command
    return found


#: What serves, starts other programs, or writes a script has no result to print as JSON.
_WITHOUT_RESULT = {
    *(("completion",), ("serve",), ("participants",), ("launch",), ("play",)),
    *(("rl", "serve"), ("rl", "openenv")),
}


@pytest.mark.parametrize("path", ALL)
def test_every_result_can_be_json(path: tuple[str, ...]) -> None:
    command = command_at(path)
    if isinstance(command, click.Group) or path in _WITHOUT_RESULT or path[0] == "services":
        return
    assert "--json" in {name for option in command.params for name in option.opts}


def printed(*arguments: str) -> dict[str, object]:
    """Run a command with `--json`, and return what it prints."""
    output = run_main(*arguments, "--json")
    assert (output.code, output.err) == (0, "")
    data: dict[str, object] = json.loads(output.out)
    return data


def test_results_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert printed("version") == {"version": __version__}
    assert "game/cogment.yaml" in str(printed("init", "game", "--yes")["written"])
    (tmp_path / "a").write_text("a")
    assert printed("copy", "a", "game") == {"copied": [{"from": "a", "to": "game/a"}]}
    assert printed("generate", "--file=game", "--python_dir=made")["written"]
    assert printed("generate", "--file=game", "--python_dir=made") == {"written": []}
    secret = ("--auth_secret_file=secret",)
    assert printed("token", "init", *secret) == {"filepath": "secret"}
    made = printed("token", "make", "ann", *secret)
    assert printed("token", "show", str(made["token"]))["id"] == made["id"]
    assert printed("token", "make", "ann", "--file=mine", *secret).keys() == {"id", "filepath"}
    entry = printed("token", "revoke", str(made["id"]), "--auth_revocation_file=gone")
    assert entry == {"filepath": "gone", "entry": made["id"], "created": True}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("version",),
        ("--version",),
        ("serve", "--help"),
        ("services", "orchestrator", "-h"),
        ("client", "-h"),
        ("client", "model_registry", "put", "-h"),
        ("client", "directory", "register", "-h"),
        ("services", "directory", "-h"),
        ("status", "-h"),
        ("launch", "-h"),
    ],
)
def test_help_and_version_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "for name in ('trio', 'purerpc', 'google', 'google.protobuf', 'yaml', 'rich'): sys.modules[name] = None\n"
        "from trio_cogment.cli import main\n"
        f"main({arguments!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{__version__}\n" if "version" in arguments[0] else "Usage: trio-cogment" in done.stdout


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",), ("version",), ("--version",)])
def test_the_quick_answers_are_those_of_click(
    arguments: tuple[str, ...], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert answered(list(arguments))
    quick = capsys.readouterr().out
    assert run(arguments) == 0
    assert quick == capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--help"], {"COLUMNS": "79"}),
        ([], {"_TRIO_COGMENT_COMPLETE": "bash_source"}),
        (["serve", "--help"], {}),
        (["--help", "--version"], {}),
    ],
)
def test_everything_else_is_left_to_click(
    arguments: list[str], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert not answered(arguments)


def modules_after(*arguments: str) -> set[str]:
    """Return what a process has imported when a command has ended, beyond what it had at its start."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "from trio_cogment.cli import main\n"
        f"try: main({arguments!r})\n"
        "finally: print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_the_quick_answers_import_next_to_nothing(argument: str) -> None:
    found = modules_after(argument)
    ours = ("", "._old_places", "._version", ".base", ".base.lazy_names", ".cli", ".cli.commands")
    assert {name for name in found if name.startswith("trio_cogment")} == {f"trio_cogment{name}" for name in ours}
    assert not {"click", "typing", "re", "enum", "trio", "purerpc", "google.protobuf"} & found


@pytest.mark.parametrize(
    ("arguments", "shown"), [((), "Commands:"), (("services",), "Commands:"), (("client",), "--timeout DURATION")]
)
def test_a_group_alone_shows_its_help(
    arguments: tuple[str, ...], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("serve", "--nothing"), "No such option"),
        (("serve", "surplus"), "unexpected extra argument"),
        (("nothing",), "No such command"),
        (("serv",), "No such command 'serv'. (Did you mean 'serve'?)"),
        (("trial", "list"), "No such command 'trial'. (Did you mean 'client trial'?)"),
        (("orchestrator",), "No such command 'orchestrator'. (Did you mean 'services orchestrator'?)"),
        (("watch",), "No such command 'watch'. (Did you mean 'client trial watch' or 'run watch'?)"),
        (("services", "nothing"), "No such command"),
        (("services", "orchestrator", "--lifecycle_port"), "requires an argument"),
        (("serve", "--port=x"), "--port: expected a port from 0 to 65535, got 'x'"),
        (("services", "orchestrator", "--actor_port=65536"), "--actor_port: expected a port from 0 to 65535"),
        (("serve", "--log_level=loud"), "--log_level: 'loud' is not one of"),
        (("demo", "--ticks=1"), "--ticks: 1 is not in the range"),
        (("serve", "--gc_frequency=-1"), "--gc_frequency: expected a number that is not negative, got -1"),
        (("serve", "--prometheus_port=x"), "--prometheus_port: expected a port from 0 to 65535, got 'x'"),
        (("serve", "--actor_web_port=x"), "--actor_web_port: expected a port from 0 to 65535, got 'x'"),
        (("serve", "--actor_http_port=x"), "--actor_http_port: expected a port, got 'x'"),
        (("serve", "--web_host=a:1"), "--web_host, --web_allow_origin: host 'a:1': expected a name without a port"),
        (("serve", "--web_datastore=h:1"), "--web_datastore: 'h:1': expected grpc://host:port"),
        (("serve", "--web_model_registry=cogment://client"), "--web_model_registry: 'cogment://client': expected"),
        (("serve", "--web_allow_origin=a"), "--web_host, --web_allow_origin: origin 'a': expected https://NAME"),
        (("serve", "--host=,"), "--host: expected an address or a name at least"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert expected in failure(capsys, *arguments)


def test_a_bad_value_from_the_environment_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIAL_ACTOR_PORT", "x")
    line = failure(capsys, "services", "orchestrator")
    assert line == "--actor_port (from TRIAL_ACTOR_PORT): expected a port from 0 to 65535, got 'x'"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "No such file or directory"),
        ("{", "not YAML"),
        ("- a", "the file: expected a mapping, got a list"),
        ("trial_params: {max_step: 3}", "max_step"),
        ("trial_params: {max_steps: many}", "many"),
    ],
)
def test_errors_in_the_params_file(tmp_path: Path, content: str | None, expected: str) -> None:
    path = tmp_path / "params.yaml"
    if content is not None:
        path.write_text(content)
    output = run_main("services", "orchestrator", "--lifecycle_port=0", "--actor_port=0", f"--params={path}")
    assert (output.code, output.out) == (1, "")
    (line,) = output.err.splitlines()
    assert line.startswith(f"trio-cogment: --params: {path}: ")
    assert expected in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--pre_trial_hooks=grpc://a:1,nonsense"], "pre_trial_hooks[1]: 'nonsense': expected grpc://host:port"),
        (["--host=192.0.2.1"], "cannot listen on ipv4:192.0.2.1:0: "),
        (["--status_file=/nowhere/status"], "--status_file: /nowhere/status: No such file or directory"),
        (["--log_file=/nowhere/log"], "--log_file: /nowhere/log: No such file or directory"),
    ],
)
def test_what_prevents_a_start(arguments: list[str], expected: str) -> None:
    output = run_main("serve", "--port=0", *arguments)
    assert (output.code, output.out) == (1, "")
    (line,) = output.err.splitlines()
    assert line.startswith(f"trio-cogment: {expected}")


def test_a_failed_start_is_told_in_the_status_file(tmp_path: Path) -> None:
    status = tmp_path / "status"
    output = run_main("serve", "--port=0", f"--status_file={status}", "--params=/nowhere")
    assert output.code == 1
    assert status.read_text() == "IT"


async def test_a_log_file_gets_json(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("{}\n")
    async with server(
        "services", "--log_level=trace", "orchestrator", "--lifecycle_port=0", "--actor_port=0", f"--log_file={log}"
    ) as running:
        async with await trio.open_tcp_stream("127.0.0.1", running.port):
            pass
        await running.stop(signal.SIGINT)
        assert running.err == ""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert entries[0] == {}
    assert any("orchestrator listening on" in entry.get("msg", "") for entry in entries)
    assert all({"time", "level", "component", "msg"} <= entry.keys() for entry in entries[1:])
    assert {entry["level"] for entry in entries[1:]} <= {"critical", "error", "warning", "info", "debug"}
    assert {entry["component"] for entry in entries[1:]} >= {"cli"}


async def test_control_c_in_the_demo_leaves_quietly() -> None:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "trio_cogment", "demo", "--ticks=2000000"],
        env=environment_variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with trio.fail_after(PATIENCE_SECONDS):
            await process.stdout.receive_some()
            process.send_signal(signal.SIGINT)
            errors = b"".join([data async for data in process.stderr])
            assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()
        for stream in (process.stdout, process.stderr):
            await stream.aclose()
    assert errors.strip() == b""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serve", "--host", "a" * 300], "cannot listen"),
        (["serve", "--params="], "--params"),
        (["serve", "--pre_trial_hooks=cogment://client"], "pre_trial_hooks[0]"),
        (["services", "orchestrator", "--pre_trial_hooks=grpc://h:1,cogment://discover"], "pre_trial_hooks[1]"),
    ],
)
def test_more_that_cannot_start_says_so_in_one_line(arguments: list[str], named: str) -> None:
    output = run_main(*arguments)
    assert output.code == 1
    assert named in output.err
    assert len(output.err.splitlines()) == 1


def test_full_disk_under_our_output_shows_no_traceback() -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "trio_cogment", "version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
