"""The commands around a project file: generate, init, run and copy."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from importlib.metadata import requires
from pathlib import Path

import pytest
import trio
from packaging.requirements import Requirement

from tests.cli.process import PATIENCE_SECONDS, environment_variables, run_main
from tests.ports import free_port
from tests.sdk.spec.projects import DATA, project
from trio_cogment import __version__

README = (Path(__file__).parents[2] / "README.md").read_text()
PYTHON = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def refusal(*arguments: object) -> str:
    output = run_main(*map(str, arguments))
    assert (output.code, output.out) == (1, "")
    (line,) = output.err.splitlines()
    return line.removeprefix("trio-cogment: ")


def command(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trio_cogment", *arguments],
        cwd=folder,
        env=environment_variables(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


# --- generate ---


def test_generate_writes_what_the_flags_say(tmp_path: Path) -> None:
    file = project(tmp_path)
    made = tmp_path / "made"
    flags = [f"--python_dir={made / 'python'}", f"--js_dir={made / 'web'}", "--typescript"]
    output = run_main("generate", "-f", str(file), *flags)
    assert (output.code, output.err) == (0, "")
    files = sorted(str(path) for path in made.rglob("*") if path.is_file())
    assert sorted(output.out.splitlines()) == files
    assert {str(made / "python" / "trio_cog_settings.py"), str(made / "web" / "CogSettings.ts")} <= set(files)
    again = run_main("generate", f"--file={file.parent}", *flags)
    assert (again.code, again.out) == (0, "")


def test_generate_as_the_published_module_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run_main("generate").code == 0
    named = run_main("generate", "--spec", "cogment.yaml", "--output", "there/my_settings.py")
    assert "there/my_settings.py" in named.out.splitlines()
    assert (tmp_path / "there" / "my_settings.py").read_text() == (tmp_path / "cog_settings.py").read_text()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--python_dir=a", "--output=b.py"], "--output and --python_dir both say where"),
        (["--typescript"], "--typescript needs --js_dir"),
        (["--output=there/"], "--output: expected the path of a .py file, got 'there'"),
        (["--file="], "-f: expected a path, got ''"),
        (["-f", "nowhere.yaml"], "generate: nowhere.yaml: No such file or directory"),
        (["-f", "/dev/null/x"], "generate: /dev/null/x: Not a directory"),
        (["--python_dir=/dev/null/x"], "generate: /dev/null/x: Not a directory"),
    ],
)
def test_generate_with_wrong_flags(
    flags: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cogment.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert refusal("generate", *flags).startswith(expected)


def test_generate_does_not_write_one_module_over_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    expected = "generate: trio_cog_settings.py is the module for this SDK; give that for the published SDK another name"
    assert refusal("generate", "--output=trio_cog_settings.py") == expected
    assert not list(tmp_path.glob("*.py"))


def test_generate_says_where_a_proto_is_broken_and_writes_nothing(tmp_path: Path) -> None:
    file = project(tmp_path, data=DATA.replace("uint32 rounds = 1;", "uint32 rounds = 1"))
    made = tmp_path / "made"
    line = refusal("generate", f"--spec={file}", f"--python_dir={made}")
    assert line == f'generate: {tmp_path}/data.proto:20:41: Expected ";".'
    assert not made.exists()


# --- init ---


def test_init_says_how_to_get_the_right_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts, other = tmp_path / "scripts", tmp_path / "other"
    for folder in (scripts, other):
        folder.mkdir()
        (folder / "python").touch(0o755)
    (scripts / "activate").touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(scripts))
    for path, said in ((scripts, "Now: cd "), (other, f"Now: . {scripts}/activate && cd ")):
        monkeypatch.setenv("PATH", str(path))
        assert said in run_main("init", str(tmp_path / f"of {path.name}"), "--yes").out


def test_init_writes_a_project_that_runs_and_whose_test_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", PYTHON)
    folder = tmp_path / "new"
    made = run_main("init", str(folder), "--actor-class=bold_guesser", "--actors=3", "--yes")
    assert (made.code, made.err) == (0, "")
    assert made.out.endswith(f"\nNow: cd {folder} && python main.py, or trio-cogment launch\n")
    names = [f"bold_guesser {number}" for number in (1, 2, 3)]
    ran = command("run", "start", folder=folder, PATH=PYTHON)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert sorted(line.partition(":")[0] for line in ran.stdout.splitlines()) == names
    tested = command("run", "test", folder=folder, PATH=PYTHON)
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout
    # What it has generated is what `generate` makes.
    again = run_main("generate", f"--file={folder}", f"--python_dir={folder}")
    assert (again.code, again.out) == (0, "")


def test_what_init_writes_can_be_launched(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert run_main("init", str(folder), "--yes").code == 0
    file = folder / "launch.yaml"
    text = file.read_text()
    for port in ("9000", "9001"):
        assert text.count(port) == 1
        text = text.replace(port, str(free_port()))
    file.write_text(text)
    done = command("launch", folder=folder, PATH=PYTHON)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^\[participants:\(1/1\)\] stdout: (player \d): \d guesses$", done.stdout, re.MULTILINE)
    assert sorted(found) == ["player 1", "player 2"]
    assert "ERROR" not in done.stderr
    assert "EVERYBODY IN THE NETWORK" not in done.stderr


@pytest.mark.parametrize("name", ["Player", "1", "a b", "", "environment"])
def test_init_refuses_other_names(name: str, tmp_path: Path) -> None:
    assert "--actor-class: expected a name of lower-case letters" in refusal("init", tmp_path, f"--actor-class={name}")


def test_init_takes_an_empty_folder_only(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    for path in (tmp_path, tmp_path / "mine"):
        assert refusal("init", path) == f"init: {path}: expected a folder that is empty or does not exist"
    assert refusal("init", tmp_path / "mine" / "below").endswith("below: Not a directory")
    assert os.listdir(tmp_path) == ["mine"]


def test_init_says_in_a_sentence_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert refusal("init", tmp_path / "new", "--yes") == (
        "init: grpcio-tools is not installed, and compiling protos needs it; the extra 'generate' brings it: "
        "pip install 'trio-cogment[generate]', or in a copy of the repository pip install -e '.[generate]'"
    )
    assert not (tmp_path / "new").exists()


def test_the_installation_of_the_readme_can_init() -> None:
    (installed,) = re.findall(r"^    .*pip install '?\.(?:\[(.*?)\])?'? &&", README, re.MULTILINE)
    needed = [Requirement(text) for text in requires("trio-cogment") or ()]
    brought = {
        requirement.name
        for requirement in needed
        if requirement.marker is None
        or any(requirement.marker.evaluate({"extra": extra}) for extra in installed.split(","))
    }
    assert "grpcio-tools" in brought


def test_init_asks_on_a_terminal(tmp_path: Path) -> None:
    outer, inner = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "trio_cogment", "init", "new"],
        cwd=tmp_path,
        env=environment_variables(),
        stdin=inner,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(inner)
    os.write(outer, b"juggler\n5\n")
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    os.close(outer)
    assert process.returncode == 0
    assert "Name of the actor class [player]:" in output
    assert "name: juggler" in (tmp_path / "new" / "cogment.yaml").read_text()
    assert "ACTORS = 5" in (tmp_path / "new" / "main.py").read_text()


# --- run ---

COMMANDS = """\
commands:
  where: pwd
  say: 'echo "$0 $1 $#"; exit 7'
  python: |
    #!/usr/bin/env python3
    import sys
    print(sys.argv[1:])
    sys.exit(3)
  wait: 'trap "echo ended; exit 4" TERM; echo ready; while :; do sleep 0.05; done'
  which: cogment version
  none:
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cogment.yaml").write_text(COMMANDS)
    return tmp_path


def test_run_works_in_the_folder_of_the_file(folder: Path) -> None:
    done = command("run", "-f", str(folder / "cogment.yaml"), "where", folder=Path("/"))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}\n", "")


def test_run_passes_arguments_and_the_exit_code(folder: Path) -> None:
    done = command("run", "say", "a b", "--file=x", folder=folder)
    assert (done.returncode, done.stdout, done.stderr) == (7, "say a b 2\n", "")
    done = command("run", "python", "--", "-f", "x", "--help", "--", folder=folder)
    assert (done.returncode, done.stdout, done.stderr) == (3, "['-f', 'x', '--help', '--']\n", "")
    done = command("run", "none", folder=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("given", [["-f", "sub/other.yaml"], ["--file", "sub/other.yaml"], ["--file=sub/other.yaml"]])
def test_run_takes_the_file_after_the_name(given: list[str], folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "other.yaml").write_text("commands: {say: 'echo \"$@\"'}")
    for separator in ([], ["--"]):
        done = command("run", "say", *given, *separator, "-x", "-f", folder=folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, "-x -f\n", "")


def test_run_finds_this_program_behind_all_others(folder: Path) -> None:
    done = command("run", "which", folder=folder, PATH="/usr/bin:/bin")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")
    other = folder / "bin" / "cogment"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho another\n")
    other.chmod(0o755)
    done = command("run", "which", folder=folder, PATH=f"/usr/bin:/bin:{other.parent}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "another\n", "")


async def test_run_gets_the_signals(folder: Path) -> None:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "trio_cogment", "run", "wait"],
        cwd=folder,
        env=environment_variables(),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with trio.fail_after(PATIENCE_SECONDS):
        async with process.stdout:
            assert await process.stdout.receive_some() == b"ready\n"
            process.send_signal(signal.SIGTERM)
            assert await process.stdout.receive_some() == b"ended\n"
            assert await process.wait() == 4


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["hwere"], "run: cogment.yaml: there is no command 'hwere'; did you mean 'where'?"),
        (
            ["zzz"],
            "run: cogment.yaml: there is no command 'zzz'; expected one of where, say, python, wait, which, none",
        ),
        (["-f", "other.yaml", "a"], "run: other.yaml: there is no command 'a'; it has no section 'commands'"),
        (["-f", "nowhere", "a"], "run: nowhere: No such file or directory"),
        (["a", "-f", "nowhere"], "run: nowhere: No such file or directory"),
        (["a", "-f"], "Option '-f' requires an argument (see trio-cogment run --help)"),
        (["-f", "."], "Missing argument 'NAME' (see trio-cogment run --help)"),
    ],
)
def test_run_refuses(arguments: list[str], expected: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "other.yaml").write_text("")
    monkeypatch.chdir(folder)
    assert refusal("run", *arguments) == expected


def test_names_of_what_a_trainer_is_asked_come_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "cogment.yaml").write_text("commands: {list: echo mine}")
    done = command("run", "-f", ".", "list", folder=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine\n", "")
    monkeypatch.chdir(folder)
    assert "127.0.0.1:1" in refusal("run", "list", "--trainer=grpc://127.0.0.1:1", "--timeout=1s")


# --- copy ---


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a.proto", "b.proto", "cogment.yaml"):
        (tmp_path / name).write_text(name)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_copy_copies_every_file_into_every_folder(here: Path) -> None:
    (here / "one" / "a.proto").write_text("old")
    output = run_main("copy", "one", "*.proto", "cogment.yaml", "two", "a.proto")
    assert (output.code, output.err) == (0, "")
    assert output.out.splitlines() == [
        f"{name} -> {folder}/{name}" for folder in ("one", "two") for name in ("a.proto", "b.proto", "cogment.yaml")
    ]
    for path in (here / "one", here / "two"):
        assert {file.name: file.read_text() for file in path.iterdir()} == {
            name: name for name in ("a.proto", "b.proto", "cogment.yaml")
        }
    assert run_main("copy", "a.proto", ".").code == 0
    assert (here / "a.proto").read_text() == "a.proto"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["one", "two"], "copy: expected a file, got folders only"),
        (["a.proto"], "copy: expected a folder that exists, got files only"),
        (["c.proto", "one"], "copy: c.proto: No such file or directory"),
        (["*.txt", "one"], "copy: *.txt: matches nothing"),
        (["a.proto", "one/a.proto", "two"], "copy: a.proto and one/a.proto have the same name; copy them one after"),
        (["/dev/null", "one"], "copy: /dev/null: expected a regular file"),
        ([], "Missing argument 'FILE... FOLDER...'"),
    ],
)
def test_copy_refuses(arguments: list[str], expected: str, here: Path) -> None:
    (here / "one" / "a.proto").touch()
    assert refusal("copy", *arguments).startswith(expected)
