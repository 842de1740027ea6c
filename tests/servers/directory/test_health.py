"""The health of a service, check by check."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.servers.directory import _health as health_module
from trio_cogment.servers.directory._health import FULL_LOAD, SHOWN, TABLE, Health, State

#: Nobody waits for a service that may be starting.
AT_ONCE = DirectoryServerConfig(registration_wait_seconds=0)
CONFIG = DirectoryServerConfig(check_interval_seconds=10, recheck_initial_seconds=1, max_failures=3, forget_seconds=60)


def test_the_table_in_the_text_is_this_table() -> None:
    text = health_module.__doc__ or ""
    rows = {cells[0]: cells[1:] for line in text.splitlines() if len(cells := line.split()) == 3}
    for state in State:
        expected = [TABLE[state, answered].name if state is not State.ASSUMED else "-" for answered in (True, False)]
        assert rows[state.name] == expected
    assert {(state, answered) for state in State for answered in (True, False)} - TABLE.keys() == {
        (State.ASSUMED, True),
        (State.ASSUMED, False),
    }


def test_the_guide_has_every_state() -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "directory.md").read_text()
    for state in State:
        assert f"`{state.name.lower()}`" in guide
        assert state.value == state.name.lower()


def test_at_first() -> None:
    assert Health.at_first(exempt=False, now=5, config=AT_ONCE) == Health(state=State.NEW, due=5, starting_until=5)
    assert not Health.at_first(exempt=False, now=5, config=AT_ONCE).shown
    assumed = Health.at_first(exempt=True, now=5, config=AT_ONCE)
    assert assumed == Health(state=State.ASSUMED, due=math.inf)
    assert assumed.shown
    with pytest.raises(KeyError):
        assumed.after_check(0, 6, CONFIG)


def test_a_life() -> None:
    health = Health.at_first(exempt=False, now=0, config=AT_ONCE).after_check(7, 1, CONFIG)
    assert health == Health(state=State.UP, due=11, checked_at=1, load=7)
    health = health.after_check(None, 11, CONFIG)
    assert health == Health(state=State.DOWN, due=12, checked_at=11, load=FULL_LOAD, failures=1, failing_since=11)
    dues = []
    for _ in range(6):
        health = health.after_check(None, health.due, CONFIG)
        dues.append(health.due - health.checked_at)
    assert dues == [2, 4, 8, 10, 10, 10]
    assert health.failing_since == 11
    health = health.after_check(0, 50, CONFIG)
    assert health == Health(state=State.UP, due=60, checked_at=50)  # as if nothing had been


def test_a_service_that_is_starting_is_looked_for_soon_and_often() -> None:
    config = DirectoryServerConfig(registration_wait_seconds=2)
    health, dues = Health.at_first(exempt=False, now=100, config=config), []
    while health.state is State.NEW:
        dues.append(health.due - 100)
        health = health.after_check(None, health.due, config)
        assert not health.shown
    assert dues == pytest.approx([0, 0.05, 0.15, 0.35, 0.75, 1.15, 1.55, 1.95])
    # All that counts as one failure, and from then on it is like any other.
    assert health == Health(
        state=State.DOWN, due=health.checked_at + 1, checked_at=health.checked_at, load=FULL_LOAD, failures=1,
        failing_since=health.checked_at,
    )  # fmt: skip
    assert health.after_check(None, health.due, config).due == health.due + 2


def test_a_service_that_came_late_is_like_one_that_was_there() -> None:
    config = DirectoryServerConfig(registration_wait_seconds=2)
    health = (
        Health.at_first(exempt=False, now=0, config=config).after_check(None, 0, config).after_check(3, 0.05, config)
    )
    assert health == Health.at_first(exempt=False, now=0, config=AT_ONCE).after_check(3, 0.05, config)


def test_a_check_after_the_reply_counts() -> None:
    """It would have to be repeated before the reply is sent."""
    config = DirectoryServerConfig(registration_wait_seconds=2)
    health = Health.at_first(exempt=False, now=0, config=config)
    assert health.after_check(None, 1.5, config).state is State.NEW
    assert health.after_check(None, 1.95, config).state is State.DOWN


def test_a_check_that_took_too_long_counts() -> None:
    config = DirectoryServerConfig(registration_wait_seconds=2)
    health = Health.at_first(exempt=False, now=0, config=config).after_check(None, 3, config)
    assert (health.state, health.failures, health.due) == (State.DOWN, 1, 4)


def test_forgotten_when_it_failed_often_and_long_enough() -> None:
    health = Health.at_first(exempt=False, now=0, config=AT_ONCE)
    for now in (0, 1, 2):
        assert not health.given_up(1000, CONFIG)
        health = health.after_check(None, now, CONFIG)
    assert health.failures == 3
    assert not health.given_up(59.9, CONFIG)
    assert health.given_up(60, CONFIG)


@given(st.lists(st.tuples(st.floats(0, 100), st.none() | st.integers(0, 255))))
def test_whatever_happens(checks: list[tuple[float, int | None]]) -> None:
    health, now, failures = Health.at_first(exempt=False, now=0, config=AT_ONCE), 0.0, 0
    for pause, load in checks:
        now += pause
        health = health.after_check(load, now, CONFIG)
        failures = failures + 1 if load is None else 0
        assert health.shown == (load is not None) == (health.state in SHOWN)
        assert health.failures == failures
        assert now < health.due <= now + 10
        assert health.checked_at == now
        assert health.given_up(now, CONFIG) <= (failures >= 3)


def test_a_thousand_failures_are_no_overflow() -> None:
    health = Health.at_first(exempt=False, now=0, config=AT_ONCE)
    for now in range(2000):
        health = health.after_check(None, now, CONFIG)
    assert health.due == 1999 + 10
