"""The forms of the log."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trio_cogment.base.log_context import PREFIX, see_spans, trial_bound
from trio_cogment.cli.log_setup import MAX_TRACEBACK_CHARACTERS, TRACE, set_up_logging
from trio_cogment.cli.logs import LOG_LEVELS, LogSettings

#: What the programs that read the log as JSON know.
KNOWN_LEVELS = {"critical", "error", "warning", "info", "debug"}


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root, hpack = logging.getLogger(), logging.getLogger("hpack")
    before = root.handlers[:], root.level, hpack.level
    yield
    for handler in set(root.handlers) - set(before[0]):
        handler.close()
    root.handlers[:], root.level, hpack.level = before


def logged(path: Path, form: str, level: str = "trace") -> list[str]:
    set_up_logging(LogSettings(level=level, form=form, file=path))
    log = logging.getLogger("trio_cogment.servers.orchestrator._trial")
    for number in (TRACE, 7, logging.DEBUG, logging.INFO, 25, logging.WARNING, logging.ERROR, logging.CRITICAL, 60):
        log.log(number, PREFIX + "level %d", "t", number)
    with trial_bound("bound"):
        logging.getLogger("somebody").warning("two\nlines and ümlauts")
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("it failed")
    return path.read_text(encoding="utf-8").splitlines()


def test_json_is_what_its_readers_expect(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in logged(tmp_path / "log", "json")]
    assert {line["level"] for line in lines} == KNOWN_LEVELS
    assert [line["level"] for line in lines[:5]] == ["debug", "debug", "debug", "info", "info"]
    assert all({"level", "msg", "component", "time"} <= line.keys() for line in lines)
    first, somebody, failure = lines[0], lines[-2], lines[-1]
    assert (first["component"], first["msg"], first["trial_id"]) == ("orchestrator", "trial t: level 5", "t")
    assert first["time"].endswith("+00:00")
    assert (somebody["component"], somebody["trial_id"]) == ("somebody", "bound")
    assert somebody["msg"] == "two\nlines and ümlauts"
    assert "trial_id" not in failure
    assert "ValueError: why" in failure["exception"]


def test_json_names_the_trace_where_there_are_traces(tmp_path: Path) -> None:
    with see_spans(lambda trial_id: ("0af7", "b7ad") if trial_id == "t" else ("", "")):
        lines = [json.loads(line) for line in logged(tmp_path / "log", "json")]
    assert (lines[0]["trace_id"], lines[0]["span_id"]) == ("0af7", "b7ad")
    assert not {"trace_id", "span_id"} & lines[-1].keys()


def test_text_names_the_trace_where_there_are_traces(tmp_path: Path) -> None:
    with see_spans(lambda trial_id: ("0af7", "b7ad") if trial_id == "t" else ("", "")):
        lines = logged(tmp_path / "log", "text")
    assert lines[0].endswith("] trial t: level 5 [trace 0af7]")
    assert not [line for line in lines if "[trace" in line and "trial t" not in line]


def test_text_names_the_trial_once(tmp_path: Path) -> None:
    lines = logged(tmp_path / "log", "text")
    assert lines[0].endswith("[TRACE] [trio_cogment.servers.orchestrator._trial] trial t: level 5")
    assert any(line.endswith(r"[WARNING] [somebody] trial bound: two\nlines and ümlauts") for line in lines)


EVIL = "a\n2026-01-01T00:00:00.000+00:00 [ERROR] [forged] all is lost\x1b[2J\x9b2J\u2028"


@pytest.mark.parametrize("form", ["text", "json"])
def test_text_of_a_peer_makes_no_entries_and_controls_no_terminal(tmp_path: Path, form: str) -> None:
    path = tmp_path / "log"
    set_up_logging(LogSettings(form=form, file=path))
    log = logging.getLogger("trio_cogment.rpc.server")
    log.warning("refused: %s", EVIL)
    log.warning("refused: %s", EVIL * 100_000)
    try:
        raise ValueError(EVIL * 100_000)
    except ValueError:
        log.exception("it failed: %s", EVIL)
    content = path.read_text(encoding="utf-8")
    assert content.replace("\n", "").isprintable()
    assert len(content) < 4 * MAX_TRACEBACK_CHARACTERS
    lines = content.split("\n")[:-1]
    assert "characters)" in lines[1]
    if form == "json":
        assert json.loads(lines[0])["msg"] == f"refused: {EVIL}"
        assert len(lines) == 3
    else:
        entries = [line for line in lines if not line.startswith("  ")]
        assert [line.split(" ")[1:3] for line in entries] == [
            ["[WARNING]", "[trio_cogment.rpc.server]"],
            ["[WARNING]", "[trio_cogment.rpc.server]"],
            ["[ERROR]", "[trio_cogment.rpc.server]"],
        ]


@pytest.mark.parametrize(("level", "count"), [("trace", 11), ("debug", 9), ("info", 8), ("warning", 6), ("error", 4)])
def test_levels(tmp_path: Path, level: str, count: int) -> None:
    assert len(logged(tmp_path / "log", "json", level)) == count


def test_off_means_nothing_at_all(tmp_path: Path) -> None:
    assert logged(tmp_path / "log", "json", "off") == []
    assert "off" in LOG_LEVELS


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    assert logged(path, "text")[0] == "before"


def test_a_file_that_cannot_be_opened_again_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    set_up_logging(LogSettings(level="info", form="text", file=folder / "log"))
    (handler,) = logging.getLogger().handlers
    folder.rename(tmp_path / "moved")
    handler.close()  # as at SIGHUP
    logging.getLogger("somebody").info("nowhere to go")
    assert "FileNotFoundError" in capsys.readouterr().err
    folder.mkdir()
    logging.getLogger("somebody").info("again")
    assert (folder / "log").read_text().endswith("again\n")


def test_without_a_file_it_goes_to_stderr() -> None:
    set_up_logging(LogSettings())
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr
