"""Descriptions of a trial are compared with its account, and a difference is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.account.beside import DiffersError
from tests.sim.suite import Unit, run_unit
from trio_cogment.servers.orchestrator import _trial
from trio_cogment.servers.orchestrator._trial import Trial

CALM = Unit(1, "liveness", "FaultPlan()")


def told_wrongly(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def make(was: Any) -> Any:
        def describe(*arguments: Any, **named: Any) -> Any:
            info = was(*arguments, **named)
            change(info)
            return info

        return describe

    return make


def one_later(info: Any) -> None:
    info.tick_id += info.tick_id == 2


def nobody(info: Any) -> None:
    del info.actors_in_trial[:]


def nothing(info: Any) -> None:
    info.ClearField("latest_observation")


def of_nobody(info: Any) -> None:
    del info.awaited[:]


def shown_first(was: Any) -> Any:
    return lambda *arguments, **named: was(*arguments, **named)._replace(awaited=())


def no_end(was: Any) -> Any:
    def info(trial: Trial, **named: Any) -> Any:
        found = was(trial, **named)
        found.ClearField("end")
        return found

    return info


@pytest.mark.sources
@pytest.mark.parametrize(
    ("owner", "name", "make", "told"),
    [
        (_trial, "describe", told_wrongly(one_later), "its tick\nexpected: 2\nseen:     3"),
        (_trial, "describe", told_wrongly(nobody), "its actors"),
        (_trial, "describe", told_wrongly(nothing), "its observation"),
        (_trial, "describe", told_wrongly(of_nobody), "whom it says that it waits for"),
        (_trial, "glance", shown_first, "whom it waits for"),
        (Trial, "info", no_end, "its end"),
        (Trial, "seconds", lambda was: property(lambda trial: was.fget(trial) + 0.1), "says that it has lasted for"),
    ],
)
def test_what_is_told_wrongly_is_noticed(
    owner: object, name: str, make: Callable[[Any], Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, make(getattr(owner, name)))
    with pytest.raises(DiffersError, match=told):
        run_unit(CALM)
