"""Entries of a directory: the services that are shown, and those that are checked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.servers.directory.test_entries import MINE, THEIRS, entry, ids
from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.servers.directory import Inquiry
from trio_cogment.servers.directory._entries import Entries
from trio_cogment.servers.directory._monitored_entries import MonitoredEntries

CONFIG = DirectoryServerConfig(check_interval_seconds=10, recheck_initial_seconds=1, forget_seconds=60)
ANY = Inquiry()


def monitored_of(*entries: object, config: DirectoryServerConfig = CONFIG) -> MonitoredEntries:
    monitored = MonitoredEntries(config)
    monitored.adopt(Entries(entries), 0)  # type: ignore[arg-type]  # entries
    return monitored


def test_shown_when_it_has_answered() -> None:
    one = entry(1)
    monitored = monitored_of(one)
    assert not monitored.shown(ANY, MINE)
    assert monitored.due(0) == [one]
    monitored.record(one, 3, 1)
    assert monitored.shown(ANY, MINE) == [one]
    assert not monitored.shown(ANY, THEIRS)
    assert not monitored.due(10.9)
    assert monitored.due(11) == [one]
    monitored.record(one, None, 11)
    assert not monitored.shown(ANY, MINE)
    assert monitored.due(12) == [one]
    monitored.record(one, 0, 12)
    assert monitored.shown(ANY, MINE) == [one]


def test_permanent_ones_and_client_actors_are_never_checked_at() -> None:
    permanent, client = entry(1, permanent=True), entry(2, protocol=3, host="client", port=0)
    monitored = monitored_of(permanent, client)
    assert ids(monitored.shown(ANY, MINE)) == [2, 1]
    assert not monitored.due(1e9)
    assert not monitored.stale([permanent, client], 1e9)
    monitored.record(permanent, None, 5)
    assert ids(monitored.shown(ANY, MINE)) == [2, 1]
    assert not monitored.given_up(permanent, 1e9)


def test_what_is_known_stays_when_others_come_and_go() -> None:
    one, two, three = entry(1), entry(2), entry(3)
    monitored = monitored_of(one, two)
    monitored.record(one, 0, 1)
    monitored.adopt(Entries([one, three]), 2)
    assert monitored.shown(ANY, MINE) == [one]
    assert monitored.due(2) == [three]
    assert monitored.health(two) is None
    monitored.record(two, 0, 3)  # a look that was under way
    assert monitored.health(two) is None
    assert not monitored.given_up(two, 1e9)


def test_forgotten_after_failures() -> None:
    one = entry(1)
    monitored = monitored_of(one)
    for now in (0, 1, 2, 3, 59):  # while the reply waits, failures do not count
        monitored.record(one, None, now)
    assert not monitored.given_up(one, 61)
    assert monitored.given_up(one, 62)
    monitored.record(one, 0, 63)
    assert not monitored.given_up(one, 100)


def test_a_fresh_check_is_not_repeated() -> None:
    one = entry(1)
    monitored = monitored_of(one)
    assert monitored.stale([one], 0) == [one]
    monitored.record(one, 0, 5)
    assert not monitored.stale([one], 5.09)
    assert monitored.stale([one], 5.2) == [one]


EVENTS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 5)),
    st.tuples(st.just("remove"), st.integers(1, 5)),
    st.tuples(st.just("look"), st.integers(1, 5), st.none() | st.integers(0, 255)),
    st.tuples(st.just("wait"), st.floats(0, 200)),
)


@given(st.lists(EVENTS, max_size=40))
def test_shown_are_those_whose_last_check_was_answered(events: list[tuple[object, ...]]) -> None:
    monitored, now = MonitoredEntries(CONFIG), 0.0
    last: dict[int, int | None] = {}
    for what, *rest in events:
        if what == "wait":
            now += rest[0]  # type: ignore[operator]  # a number
            continue
        number = int(rest[0])  # type: ignore[call-overload]  # one
        draft = monitored.entries.copy()
        if what == "add" and number not in draft:
            draft.register(entry(number), CONFIG)
            last[number] = None
            monitored.adopt(draft, now)
        elif what == "remove":
            draft.remove(number)
            last.pop(number, None)
            monitored.adopt(draft, now)
        elif what == "look":
            monitored.record(entry(number), rest[1], now)  # type: ignore[arg-type]  # a load or None
            if number in last:
                last[number] = rest[1]  # type: ignore[assignment]  # the same
        shown = {number for number, load in last.items() if load is not None}
        assert set(ids(monitored.shown(ANY, MINE))) == shown
        assert set(ids(monitored.due(now + 10))) == last.keys()  # nobody is forgotten for longer than the interval
        assert not any(monitored.given_up(entry(number), now) for number in shown)
