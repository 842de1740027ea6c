"""`trio-cogment replay`: recorded trials for people and programs, and one line for every file that is none."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.histories import path_of
from trio_cogment.cli import main
from trio_cogment.cli.replay import MAX_FILE_BYTES


def outcome(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["replay", *map(str, arguments)])
    output = capsys.readouterr()
    return caught.value.code, output.out, output.err


def test_the_states_are_shown_tick_by_tick(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outcome(capsys, path_of("optional-actor-lost"))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "trial t, with samples"
    headings = [line.split(":")[0] for line in lines if line.startswith("==")]
    assert headings == [
        "== INITIALIZING, tick 0",
        "== PENDING, tick 0",
        "== RUNNING, tick 0",
        "== RUNNING, tick 1",
        "== RUNNING, tick 2",
        "== WAIT_ACKS, tick 3",
        "== ENDED, tick 3",
    ]
    assert any("<- lost bob: its stream failed" in line for line in lines)
    assert any(line.strip() == "-> announce: ENDED" for line in lines)
    assert max(map(len, lines)) == 160
    _, full, _ = outcome(capsys, "--full", path_of("optional-actor-lost"))
    assert max(map(len, full.splitlines())) > 160


def test_the_guide_shows_what_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).resolve().parents[2]
    guide = (root / "docs" / "simulation.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```console\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    command, *shown = block.splitlines()
    assert command.startswith("$ trio-cogment replay ")
    assert shown.pop() == "..."
    monkeypatch.chdir(root)
    code, out, _ = outcome(capsys, *command.split()[3:])
    assert code == 0
    assert shown == out.splitlines()[: len(shown)]
    assert len(shown) > 3


def test_programs_get_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outcome(capsys, "--json", path_of("hard-end"))
    assert (code, err) == (0, "")
    header, *steps = [json.loads(line) for line in out.splitlines()]
    assert header["trial"] == "t"
    assert [step["in"]["in"] for step in steps[:2]] == ["begin", "parameters"]
    assert steps[-1]["phase"] == "ENDED"
    assert all({"at", "wall_ns", "in", "out", "phase", "tick", "streams"} == set(step) for step in steps)


def test_what_is_done_otherwise_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = path_of("hard-end").read_text(encoding="utf-8")
    changed = tmp_path / "changed.jsonl"
    changed.write_text(text.replace('"state": "RUNNING"', '"state": "WALKING"', 1), encoding="utf-8")
    code, out, err = outcome(capsys, changed)
    assert code == 1
    assert '-{"out": "announce", "state": "WALKING"}\n+{"out": "announce", "state": "RUNNING"}' in out
    assert err == (
        f"trio-cogment: {changed}: this version does otherwise than the one that recorded it: 2 lines differ\n"
    )
    code, out, err = outcome(capsys, "--json", changed)
    assert code == 1
    assert all(json.loads(line) for line in out.splitlines())


def test_nothing_in_a_file_commands_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = path_of("failed-start").read_text(encoding="utf-8")
    hostile = tmp_path / "hostile.jsonl"
    hostile.write_text(text.replace('"trial": "t"', '"trial": "\\u001b[2Jt"'), encoding="utf-8")
    code, out, _ = outcome(capsys, hostile)
    assert (code, out.splitlines()[0]) == (0, "trial \\x1b[2Jt, with samples")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "expected a recorded trial, got nothing"),
        (b"\xff\xfe", "expected a recorded trial, got bytes that are not text (at 0)"),
        (b"{}", "line 1: expected a recorded trial"),
        (b'{"trio_cogment_trial": 9}', "line 1: trio_cogment_trial: this version of trio-cogment reads version 1 only"),
    ],
)
def test_files_that_are_no_recorded_trials(
    content: bytes, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    code, out, err = outcome(capsys, file)
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith(f"trio-cogment: {file}: {expected}")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/nowhere", "/nowhere: No such file or directory"),
        ("/", "/: Is a directory"),
        ("/dev/zero", f"/dev/zero: larger than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_files_that_cannot_be_read(file: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome(capsys, file) == (1, "", f"trio-cogment: {expected}\n")


def test_a_file_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outcome(capsys)
    assert (code, out) == (1, "")
    assert "Missing argument 'FILE'" in err


def test_no_trio_is_needed() -> None:
    code = (
        "import sys\n"
        "sys.modules['trio'] = None\n"
        "from trio_cogment.cli import main\n"
        f"main(['replay', {str(path_of('failed-start'))!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("trial t")
