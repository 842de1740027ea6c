"""Debts: memory that is borrowed and of no use, while others wait for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.budget.memory import Debts
from trio_cogment.rpc._streams import Stream


class Connection:
    """A connection that owes as much as it is told."""

    def __init__(self) -> None:
        self.messages: list[Stream] = []
        self.mark: object = None
        self.woken = 0
        self.closed: list[RpcError] = []
        self.resets: list[Stream] = []
        self.engine: Any = SimpleNamespace(
            incomplete=lambda: list(self.messages),
            send_mark=lambda: self.mark,
            settle=lambda: None,
            reset=lambda stream, code: self.resets.append(stream),
        )

    def wake(self) -> None:
        self.woken += 1

    def close(self, reason: RpcError) -> None:
        self.closed.append(reason)

    def begin(self, missing: int, call: object = None) -> Stream:
        stream = Stream(1, recv_window=0, send_window=0, max_message=10**6)
        stream.missing, stream.call = missing, call
        self.messages.append(stream)
        return stream


class Call:
    """A call that notes how it is broken."""

    def __init__(self) -> None:
        self.ended: list[tuple[StatusCode, str]] = []

    def on_broken(self, code: StatusCode, text: str) -> None:
        self.ended.append((code, text))


def test_a_message_that_comes_no_further_ends_its_call() -> None:
    connection, call = Connection(), Call()
    connection.begin(100_000, call)
    debts = Debts(2, 10)
    for now in (0.0, 1.0, 1.9):
        debts.look([connection], now)
    assert not call.ended
    debts.look([connection], 2.0)
    ((code, text),) = call.ended
    assert code is StatusCode.RESOURCE_EXHAUSTED
    assert text.startswith("server_memory_bytes:")
    assert connection.woken == 1


def test_a_message_without_a_call_is_reset() -> None:
    connection = Connection()
    stream = connection.begin(100_000)
    debts = Debts(2, 10)
    debts.look([connection], 0)
    debts.look([connection], 2)
    assert connection.resets == [stream]


def test_a_message_that_comes_is_left_alone() -> None:
    connection, call = Connection(), Call()
    stream = connection.begin(100_000, call)
    debts = Debts(2, 10)
    for now in range(5):
        debts.look([connection], 2.0 * now)
        stream.missing -= 16 * 1024
    stream.missing = 500_000  # the next one
    debts.look([connection], 10)
    assert not call.ended
    stream.missing -= 10_000
    debts.look([connection], 12)
    assert call.ended


def test_a_peer_that_reads_nothing_loses_its_connection() -> None:
    deaf, slow, idle = Connection(), Connection(), Connection()
    debts = Debts(2, 10)
    for now in range(11):
        deaf.mark, slow.mark = "stuck", now // 9
        debts.look([deaf, slow, idle], float(now))
    assert [error.code for error in deaf.closed] == [StatusCode.RESOURCE_EXHAUSTED]
    assert not slow.closed
    assert not idle.closed


def test_when_memory_has_been_enough_time_begins_anew() -> None:
    connection, call = Connection(), Call()
    connection.begin(100_000, call)
    connection.mark = "stuck"
    debts = Debts(2, 10)
    debts.look([connection], 0)
    debts.forget()
    debts.look([connection], 100)
    assert not call.ended
    assert not connection.closed
