"""Processes of a worker, real ones: who gets a signal, and when all have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.trainer.dispatch.test_workers import bury, sleeper
from trio_cogment.base.host import run_inline
from trio_cogment.trainer.dispatch import groups
from trio_cogment.trainer.dispatch.command import TOKEN_VARIABLE
from trio_cogment.trainer.dispatch.groups import Group, end_marked, marked, signal_marked

TOKEN = "a token of these tests"
#: The leader starts a process without its token in the same group, says its number, and waits, or ends.
LEADER = """\
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"],
                         env={}, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


@contextmanager
def led(seconds: float) -> Iterator[tuple[subprocess.Popen[bytes], Group, int]]:
    """Start a leader with a process of its group; yield it, its group and the other's number."""
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER, str(seconds)],
        env={**os.environ, TOKEN_VARIABLE: TOKEN},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert leader.stdout is not None
    other = int(leader.stdout.readline())
    try:
        yield leader, Group(leader, TOKEN, run_inline), other
    finally:
        for pid in (other, leader.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        bury([leader])


def is_there(pid: int) -> bool:
    """Tell whether a process has not ended; one that nobody has waited for has."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_all_of_a_group_end_also_those_without_the_token() -> None:
    with led(600) as (leader, group, other), trio.fail_after(60):
        assert is_there(other)
        assert await group.end(20, 20)
        assert not is_there(other)
        assert await group.wait() == -signal.SIGTERM
        assert leader.returncode == -signal.SIGTERM


async def test_a_leader_that_has_ended_leaves_its_group_to_be_ended() -> None:
    with led(0) as (_, group, other), trio.fail_after(60):
        await group.leader_ended()
        assert is_there(other)
        assert await group.end(20, 20)
        assert not is_there(other)
        assert await group.wait() == 0


async def test_one_that_ignores_the_first_signal_gets_the_second() -> None:
    process = sleeper("stubborn", **{TOKEN_VARIABLE: TOKEN})
    try:
        with trio.fail_after(60):
            assert await Group(process, TOKEN, run_inline).end(0.1, 20)
        assert process.wait() == -signal.SIGKILL
    finally:
        bury([process])


async def test_a_group_of_which_something_is_left_is_not_ended(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[float, Any]] = []

    def nothing(_tokens: Collection[str], number: int) -> int:
        sent.append((trio.current_time(), number))
        return 1

    process = sleeper("", **{TOKEN_VARIABLE: TOKEN})
    try:
        monkeypatch.setattr(os, "killpg", lambda *_: None)
        monkeypatch.setattr(groups, "signal_marked", nothing)
        began = trio.current_time()
        assert not await Group(process, TOKEN, run_inline).end(3, 2)
        assert trio.current_time() - began == pytest.approx(5, abs=0.2)
        terms = [at for at, number in sent if number == signal.SIGTERM]
        kills = [at for at, number in sent if number == signal.SIGKILL]
        assert len(terms) == 1
        assert len(kills) > 10
        assert kills[0] - began == pytest.approx(3, abs=0.1)
    finally:
        monkeypatch.undo()
        bury([process])


async def test_what_is_forked_while_it_is_killed_is_killed_as_well(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is left is signalled again, and only with the signal that nobody can ignore."""
    sent: list[int] = []
    left = [1] * 3 + [2] * 4 + [0]

    def signalled(_tokens: Collection[str], number: int) -> int:
        sent.append(number)
        return 1

    monkeypatch.setattr(groups, "signal_marked", signalled)
    monkeypatch.setattr(groups, "marked", lambda _tokens: [0] * left.pop(0))
    assert await end_marked([TOKEN], run_inline, 0.15, 60) == 0
    assert sent[0] == signal.SIGTERM
    assert set(sent[1:]) == {signal.SIGKILL}
    assert len(sent) >= 4


async def test_who_cannot_be_ended_is_counted(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "signal_marked", lambda _tokens, _number: 2)
    monkeypatch.setattr(groups, "marked", lambda _tokens: [1, 2])
    began = trio.current_time()
    assert await end_marked([TOKEN], run_inline, 3, 2) == 2
    assert trio.current_time() - began == pytest.approx(5, abs=0.2)


def test_how_many_have_got_a_signal() -> None:
    processes = [sleeper("", **{TOKEN_VARIABLE: TOKEN}) for _ in range(2)]
    try:
        assert sorted(marked([TOKEN])) == sorted(process.pid for process in processes)
        assert signal_marked([TOKEN, "another"], signal.SIGTERM) == 2
        assert [process.wait() for process in processes] == [-signal.SIGTERM] * 2
        assert signal_marked([TOKEN], signal.SIGTERM) == 0
    finally:
        bury(processes)
