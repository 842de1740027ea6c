"""Output of workers."""

from __future__ import annotations

import os
from pathlib import Path

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.base.host import run_inline
from trio_cogment.base.host.files import SystemFiles
from trio_cogment.trainer.dispatch.output import Lines, LogFile, Output, Tail


@given(st.lists(st.binary(max_size=20)), st.integers(1, 10))
def test_lines_do_not_depend_on_how_they_are_cut(pieces: list[bytes], most: int) -> None:
    lines = Lines(most)
    found = [line for piece in pieces for line in lines.feed(piece)] + lines.end()
    every = b"".join(pieces).split(b"\n")
    expected = [line for line in every[:-1] if len(line) <= most]
    expected += [every[-1]] if 0 < len(every[-1]) <= most else []
    assert found == expected
    assert lines.left_out == sum(len(line) > most for line in every)


def test_the_tail_has_the_last_lines() -> None:
    tail = Tail(2)
    tail.add([b"one", b"two \xff", b"three" * 1000])
    first, second = tail.text.split("\n")
    assert (first, len(second)) == ("two \N{REPLACEMENT CHARACTER}", 400)


async def test_a_log_file_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogFile(SystemFiles(), str(path), 10, run_inline)
    for _ in range(5):
        await log.write(b"123456")
    assert path.read_bytes() == b"1234561234\n(more is not kept: the file has its largest size)\n"
    log.close()


async def test_a_log_file_that_cannot_be_written_is_given_up(tmp_path: Path) -> None:
    log = LogFile(SystemFiles(), str(tmp_path / "not there" / "log"), 10, run_inline)
    await log.write(b"1")
    await log.write(b"2")
    log.close()
    assert os.listdir(tmp_path) == []


async def test_nothing_is_waited_for_behind_the_end_of_a_worker(autojump_clock: trio.testing.MockClock) -> None:
    pipe, end = trio.testing.memory_stream_one_way_pair()
    output = Output(end, LogFile(SystemFiles(), None, 1, run_inline), Lines(100))
    await pipe.send_all(b"one\ntwo")
    assert await output.read() == [b"one"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expect, output, [b"two"])
        await trio.testing.wait_all_tasks_blocked()
        output.finish(5)
    assert trio.current_time() >= 5
    assert await output.read() is None


async def _expect(output: Output, lines: list[bytes]) -> None:
    assert await output.read() == lines
