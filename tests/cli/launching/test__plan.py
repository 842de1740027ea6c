"""From a file to what is run: environment, folders, arguments, order; and what is refused, with its line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.cli.launching import Plan, Script, load_plan

OS = {"PATH": "/bin", "USER": "ann"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "project" / "launch.yaml"


def planned(file: Path, text: str, arguments: Sequence[str] = ()) -> Plan:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return load_plan(file, arguments, OS)


def one(file: Path, text: str, arguments: Sequence[str] = ()) -> Script:
    plan = planned(file, text, arguments)
    assert plan.warnings == ()
    (script,) = plan.scripts
    return script


def refusal(file: Path, text: str) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        planned(file, text)
    start = f"{file}: "
    assert str(caught.value).startswith(start)
    return str(caught.value).removeprefix(start)


def test_the_least_file(file: Path) -> None:
    assert one(file, "scripts: {a: {commands: [[echo, 1]]}}") == Script(
        name="a", folder=file.parent, environment=OS, commands=(("echo", "1"),)
    )


def test_a_whole_file(file: Path) -> None:
    plan = planned(
        file,
        r"""
global:
  folder: services
  environment:
    PORT: 0x10
    ENDPOINT: "grpc://localhost:{{.PORT}}"
scripts:
  first:
    environment:
      PORT: "{{.PORT}}1"
      VERBOSE: yes
      NOTHING:
    folder: one
    quiet: on
    ready_output: 'Listening \[port:{{.PORT}}\]'
    commands:
      - [serve, "--port={{.PORT}}", "{{.VERBOSE}}"]
      - ["{{if .NOTHING}}never{{end}}"]
      - [echo, "{{.ENDPOINT}} {{.USER}}"]
  second:
    depends_on: [first, first]
    folder: /else/where
    commands:
      - [echo]
""",
    )
    first, second = plan.scripts
    assert plan.warnings == ()
    assert first.environment == OS | {
        "PORT": "161",
        "ENDPOINT": "grpc://localhost:16",
        "VERBOSE": "true",
        "NOTHING": "",
    }
    assert list(first.environment)[-4:] == ["PORT", "ENDPOINT", "VERBOSE", "NOTHING"]
    assert first.commands == (("serve", "--port=161", "true"), ("echo", "grpc://localhost:16 ann"))
    assert (first.folder, first.quiet) == (file.parent / "services" / "one", True)
    assert first.ready_output is not None
    assert first.ready_output.search("Listening [port:161]")
    assert second.environment == OS | {"PORT": "16", "ENDPOINT": "grpc://localhost:16"}
    assert (second.folder, second.depends_on, second.quiet) == (Path("/else/where"), ("first",), False)


def test_arguments(file: Path) -> None:
    text = """
scripts:
  a:
    environment: {__1: hidden, ALL: "{{.__ALL_ARGS}}", N: "{{.__NB_ARGS}}"}
    commands:
      - [one, "{{.__1}}", "{{.__2}}", "{{.__3}}", "{{.__4}}"]
      - [all, "{{.__ALL_ARGS}}", "<{{.__ALL_ARGS}}>", "{{ .__ALL_ARGS }}"]
      - ["{{.__3}}", ""]
"""
    script = one(file, text, ["x", "y z"])
    # They win in templates, but the processes have what the file says.
    assert script.environment == OS | {"__1": "hidden", "ALL": "x y z", "N": "2"}
    assert script.commands == (("one", "x", "y z"), ("all", "x", "y z", "<x y z>", "x y z"))
    assert one(file, text).commands == (("one",), ("all", "<>"))
    eleven = [str(number) for number in range(11)]
    last = "scripts: {a: {commands: [[echo, '{{.__10}}', '{{.__11}}']]}}"
    assert one(file, last, eleven).commands == (("echo", "9", "10"),)
    assert planned(file, last).scripts[0].commands == (("echo", "<no value>", "<no value>"),)


def test_parts_of_the_file_may_be_shared(file: Path) -> None:
    script = one(file, "python: &python\n  - [python3, main.py]\nscripts: {a: {commands: *python}}")
    assert script.commands == (("python3", "main.py"),)


def test_what_looks_like_a_mistake_is_told(file: Path) -> None:
    plan = planned(
        file,
        """
globals: {}
scripts:
  a:
    dir: sub
    depend_on: []
    commands: [[echo, "{{.PORT}}", "{{.PORT}}"], [echo, "{{or .PORT `9000`}}"]]
""",
    )
    assert plan.scripts[0].folder == file.parent / "sub"
    assert [warning.removeprefix(f"{file}: ") for warning in plan.warnings] == [
        "line 2: the file: unknown key 'globals'; did you mean 'global'?",
        "line 6: scripts.a: unknown key 'depend_on'; did you mean 'depends_on'?",
        "line 5: scripts.a.dir: is called `folder` now",
        "line 7: scripts.a.commands[0][1]: there is no variable 'PORT'; it is written <no value>",
        "line 7: scripts.a.commands[0][2]: there is no variable 'PORT'; it is written <no value>",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected `scripts`, got an empty file"),
        ("[]", "line 1: the file: expected a mapping, got a list"),
        ("global: {}", "line 1: scripts: expected one script at least"),
        ("scripts: {}", "line 1: scripts: expected one script at least"),
        ("scripts:\n  a:\n", "line 2: scripts.a: expected a mapping, got nothing"),
        ("scripts:\n  a: {}\n", "line 2: scripts.a.commands: expected a list of commands, got nothing"),
        ("scripts:\n  a: {commands: []}\n", "line 2: scripts.a.commands: expected one command at least"),
        ("scripts:\n  a: {commands: x}", "line 2: scripts.a.commands: expected a list, got 'x'"),
        (
            "scripts:\n  a:\n    commands:\n      - python main.py\n",
            "line 4: scripts.a.commands[0]: expected a list of arguments such as [python, main.py], got one text",
        ),
        (
            "scripts:\n  a: {commands: [[{x: 1}]]}",
            "line 2: scripts.a.commands[0][0]: expected one value, got a mapping; what begins with {{ needs quotes",
        ),
        ("scripts:\n  a: {quiet: 2, commands: [[x]]}", "line 2: scripts.a.quiet: expected true or false, got '2'"),
        (
            "scripts:\n  a:\n    commands: [[x]]\n    depends_on: [b]\n  bb: {commands: [[x]]}",
            "line 4: scripts.a.depends_on[0]: there is no script 'b'; did you mean 'bb'?",
        ),
        (
            "scripts:\n  a:\n    commands: [[x]]\n    depends_on: [zzz]",
            "line 4: scripts.a.depends_on[0]: there is no script 'zzz'; expected one of a",
        ),
        (
            "scripts:\n  a: {commands: [[x]], depends_on: [a]}",
            "depends_on: scripts wait for each other: a -> a",
        ),
        (
            "scripts:\n  a: {commands: [[x]], depends_on: [b]}\n  b: {commands: [[x]], depends_on: [a]}",
            "depends_on: scripts wait for each other: a -> b -> a",
        ),
        (
            "scripts:\n  a:\n    environment:\n      X: [1]\n    commands: [[x]]",
            "line 4: scripts.a.environment.X: expected one value, got a list",
        ),
        (
            "scripts: {a: {environment: {'X=Y': 1}, commands: [[x]]}}",
            "line 1: scripts.a.environment: expected the name of a variable, got 'X=Y'",
        ),
        ('scripts:\n  "\\n": {commands: [[x]]}', "line 2: scripts: expected a printable name, got '\\n'"),
        (
            "scripts:\n  a:\n    commands:\n      - [x, '{{.PORT']",
            "line 4: scripts.a.commands[0][1]: an action is not closed by }}: '{{.PORT'",
        ),
        (
            "global:\n  environment:\n    X: '{{len 1}}'\nscripts: {a: {commands: [[x]]}}",
            "line 3: global.environment.X: len: expected a text, got int 1",
        ),
        (
            "scripts:\n  a: {ready_output: '(', commands: [[x]]}",
            "line 2: scripts.a.ready_output: expected a regular expression, got '(': "
            "missing ), unterminated subpattern",
        ),
        (
            "scripts:\n  a: {ready_output: '\\pL', commands: [[x]]}",
            "line 2: scripts.a.ready_output: expected a regular expression, got '\\\\pL': bad escape \\p",
        ),
        (
            'scripts:\n  a: {commands: [["\\0"]]}',
            "line 2: scripts.a.commands[0][0]: a process cannot be given the character NUL",
        ),
    ],
)
def test_what_is_wrong_has_its_line(file: Path, text: str, expected: str) -> None:
    assert refusal(file, text) == expected


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="No such file"):
        load_plan(tmp_path / "none.yaml", [], OS)
