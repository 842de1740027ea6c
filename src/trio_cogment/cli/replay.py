"""`trio-cogment replay`: replays a recorded trial (`trio_cogment.trial.recording.replay`) and shows it tick by tick."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import json_option
from trio_cogment.cli.text import print_json

#: Larger files than any recorded trial are not read.
MAX_FILE_BYTES = 64 * 1024 * 1024
_WIDTH = 160
_INDENT = " " * 12


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--full", is_flag=True, help="Print long lines whole.")
@json_option("Print each input with its effects and the state as JSON.")
def replay(file: Path, full: bool, as_json: bool) -> None:
    """Play a recorded trial through this version's rules, and show it tick by tick.

    Exit code 1, and the differences, if this version does anything else than the one that recorded it.
    """
    from trio_cogment.trial.recording import replay as replayed_by_this_version

    recorded = _read(file)
    try:
        replayed = replayed_by_this_version(recorded)
    except CogmentError as error:
        raise Failure(f"{file}: {error}") from error
    steps = _steps([json.loads(line) for line in replayed.splitlines()])
    if as_json:
        for step in steps:
            print_json(step)
    else:
        for line in _page(steps):
            line = line if full or len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."
            # The file may come from anywhere: its control characters must not reach the terminal.
            click.echo(line if line.isprintable() else line.encode("unicode_escape").decode())
    if replayed != recorded:
        changes = list(
            difflib.unified_diff(recorded.splitlines(), replayed.splitlines(), "recorded", "now", lineterm="", n=1)
        )
        count = sum(line.startswith(("+", "-")) and not line.startswith(("+++", "---")) for line in changes)
        if not as_json:
            click.echo("\n".join(changes))
        differ = "1 line differs" if count == 1 else f"{count} lines differ"
        raise Failure(f"{file}: this version does otherwise than the one that recorded it: {differ}")


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise Failure(f"{file}: larger than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Failure(f"{file}: expected a recorded trial, got bytes that are not text (at {error.start})") from error


def _steps(lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the first line, and then each input with its effects and the state after it."""
    yield lines[0]
    state: dict[str, Any] = {}
    step: dict[str, Any] | None = None
    for line in lines[1:]:
        if "in" in line:
            if step is not None:
                yield step | state
            step = {"at": line.pop("at"), "wall_ns": line.pop("wall_ns"), "in": line, "out": []}
        elif "phase" in line:
            state = line
        elif step is not None:
            step["out"].append(line)
    if step is not None:
        yield step | state


def _page(steps: Iterator[dict[str, Any]]) -> Iterator[str]:
    from google.protobuf import text_format

    from trio_cogment.api.common_pb2 import TrialParams
    from trio_cogment.trial import ENVIRONMENT

    header = next(steps)
    yield f"trial {header['trial']}, {'with' if header['samples'] else 'without'} samples"
    names: dict[int, str] = {ENVIRONMENT: "environment"}
    before = None
    for step in steps:
        line = step["in"]
        if line["in"] == "parameters":
            params = text_format.Parse(line["params"], TrialParams())
            names |= {index: actor.name for index, actor in enumerate(params.actors)}
            names[ENVIRONMENT] = params.environment.name or "environment"
        yield f"{step['at']:11.6f} <- {_shown(line, names)}"
        for out in step["out"]:
            yield f"{_INDENT}-> {_shown(out, names)}"
        now = step.get("phase"), step.get("tick")
        if now != before:
            before = now
            streams = ", ".join(f"{_name(int(index), names)} {state}" for index, state in step["streams"].items())
            yield f"== {now[0]}, tick {now[1]}{': ' if streams else ''}{streams}"


def _shown(line: dict[str, Any], names: dict[int, str]) -> str:
    """Return an input or an effect as text: its kind, its participant, and its content."""
    rest = dict(line)
    words = [rest.pop("in", "") or rest.pop("out", "")]
    if "timer" in rest:
        words.append(rest.pop("timer"))
    if "participant" in rest:
        words.append(_name(rest.pop("participant"), names))
    if "deadline" in rest:
        words.append(f"at {rest.pop('deadline'):.6f}")
    text = " ".join(str(value) for value in rest.values() if value != "")
    return " ".join(words) + (f": {text}" if text else "")


def _name(index: int, names: dict[int, str]) -> str:
    return names.get(index, str(index))
