"""The accounts of a play notice what the orchestrator does between its machines and those who see it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.account.beside import DiffersError
from tests.sim.suite import Unit, run_chunk, run_unit
from trio_cogment.rpc import SharedMessage
from trio_cogment.servers.orchestrator._datalog import Datalog
from trio_cogment.servers.orchestrator._participant_stream import ParticipantStream

#: Lines of a terminal that is not small.
SCREEN = 50
CALM = Unit(1, "liveness", "FaultPlan()")


def replaced(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, make: Callable[[Any], Any]) -> None:
    monkeypatch.setattr(kind, name, make(getattr(kind, name)))


def a_relay_is_lost(was: Any) -> Any:
    def post_shared(stream: ParticipantStream, message: SharedMessage) -> None:
        if stream.name != "bob":
            was(stream, message)

    return post_shared


def a_sample_has_another_time(was: Any) -> Any:
    def put(datalog: Datalog, sample: Any) -> None:
        sample.info.timestamp += sample.info.tick_id == 2
        was(datalog, sample)

    return put


@pytest.mark.sources
@pytest.mark.parametrize(
    ("kind", "name", "make", "told"),
    [
        (ParticipantStream, "post_shared", a_relay_is_lost, r"actor bob \(left\): number \d+ of what it read"),
        (Datalog, "put", a_sample_has_another_time, r"datalog datalog \(left\): number \d+ of what it read"),
    ],
)
def test_what_is_lost_or_changed_on_the_way_is_noticed(
    kind: type, name: str, make: Callable[[Any], Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, kind, name, make)
    with pytest.raises(DiffersError, match=told):
        run_unit(CALM)


@pytest.mark.sources
def test_the_report_of_a_seed_fits_on_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, ParticipantStream, "post_shared", a_relay_is_lost)
    _, [(_, text)], _ = run_chunk([CALM])
    lines = text.splitlines()
    assert len(lines) <= SCREEN
    assert re.match("DiffersError: trial trial-[0-9]: actor bob", lines[5])
    assert [line.partition(":")[0] for line in lines[6:8]] == ["expected", "seen"]
    assert "before that:" in lines


def test_without_that_there_is_nothing_to_notice() -> None:
    assert run_unit(CALM)["a trial untouched"] == 4
