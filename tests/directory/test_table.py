"""Which services are shown, which are checked, and which have the lowest load."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.directory.test_registry import MINE, THEIRS, entry, ids
from trio_cogment.config import DirectoryServerConfig
from trio_cogment.directory import Inquiry
from trio_cogment.directory._registry import Registry
from trio_cogment.directory._table import Table

CONFIG = DirectoryServerConfig(check_interval_seconds=10, recheck_initial_seconds=1, forget_seconds=60)
ANY = Inquiry()


def table_of(*entries: object, config: DirectoryServerConfig = CONFIG) -> Table:
    table = Table(config)
    table.adopt(Registry(entries), 0)  # type: ignore[arg-type]  # entries
    return table


def test_shown_when_it_has_answered() -> None:
    one = entry(1)
    table = table_of(one)
    assert not table.shown(ANY, MINE)
    assert table.due(0) == [one]
    table.record(one, 3, 1)
    assert table.shown(ANY, MINE) == [one]
    assert not table.shown(ANY, THEIRS)
    assert not table.due(10.9)
    assert table.due(11) == [one]
    table.record(one, None, 11)
    assert not table.shown(ANY, MINE)
    assert table.due(12) == [one]
    table.record(one, 0, 12)
    assert table.shown(ANY, MINE) == [one]


def test_permanent_ones_and_client_actors_are_never_checked_at() -> None:
    permanent, client = entry(1, permanent=True), entry(2, protocol=3, host="client", port=0)
    table = table_of(permanent, client)
    assert ids(table.shown(ANY, MINE)) == [2, 1]
    assert not table.due(1e9)
    assert not table.stale([permanent, client], 1e9)
    table.record(permanent, None, 5)
    assert ids(table.shown(ANY, MINE)) == [2, 1]
    assert not table.given_up(permanent, 1e9)


def test_what_is_known_stays_when_others_come_and_go() -> None:
    one, two, three = entry(1), entry(2), entry(3)
    table = table_of(one, two)
    table.record(one, 0, 1)
    table.adopt(Registry([one, three]), 2)
    assert table.shown(ANY, MINE) == [one]
    assert table.due(2) == [three]
    assert table.health(two) is None
    table.record(two, 0, 3)  # a look that was under way
    assert table.health(two) is None
    assert not table.given_up(two, 1e9)


def test_forgotten_after_failures() -> None:
    one = entry(1)
    table = table_of(one)
    for now in (0, 1, 59):
        table.record(one, None, now)
    assert not table.given_up(one, 59)
    assert table.given_up(one, 60)
    table.record(one, 0, 61)
    assert not table.given_up(one, 100)


def test_a_fresh_check_is_not_repeated() -> None:
    one = entry(1)
    table = table_of(one)
    assert table.stale([one], 0) == [one]
    table.record(one, 0, 5)
    assert not table.stale([one], 5.09)
    assert table.stale([one], 5.2) == [one]


@pytest.mark.parametrize(
    ("loads", "chosen"),
    [
        ([], []),
        ([255], []),
        ([255, 255], []),
        ([255, 50], [2]),
        ([255, 50, 60], [2, 3]),
        ([50, 60, 61], [1, 2]),
        ([254], [1]),
        ([250, 254, 255], [1, 2]),  # near the end the spread does not reach who wants nobody
        ([0, 10, 11], [1, 2]),
    ],
)
def test_the_least_loaded(loads: list[int], chosen: list[int]) -> None:
    entries = [entry(number) for number, _ in enumerate(loads, 1)]
    table = table_of(*entries)
    for one, load in zip(entries, loads, strict=True):
        table.record(one, load, 0)
    assert sorted(ids(table.least_loaded(entries, random.Random(0)))) == chosen


def test_the_order_of_the_least_loaded_is_chance() -> None:
    entries = [entry(number) for number in range(1, 4)]
    table = table_of(*entries)
    orders = {tuple(ids(table.least_loaded(entries, random.Random(seed)))) for seed in range(100)}
    assert len(orders) == 6
    assert ids(entries) == [1, 2, 3]


@given(st.lists(st.integers(0, 255)))
def test_whoever_is_chosen(loads: list[int]) -> None:
    entries = [entry(number) for number, _ in enumerate(loads, 1)]
    table = table_of(*entries)
    for one, load in zip(entries, loads, strict=True):
        table.record(one, load, 0)
    chosen = {loads[one.service_id - 1] for one in table.least_loaded(entries, random.Random(0))}
    assert chosen == {load for load in loads if load <= min(loads) + 10 and load != 255}


EVENTS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 5)),
    st.tuples(st.just("remove"), st.integers(1, 5)),
    st.tuples(st.just("look"), st.integers(1, 5), st.none() | st.integers(0, 255)),
    st.tuples(st.just("wait"), st.floats(0, 200)),
)


@given(st.lists(EVENTS, max_size=40))
def test_shown_are_those_whose_last_check_was_answered(events: list[tuple[object, ...]]) -> None:
    table, now = Table(CONFIG), 0.0
    last: dict[int, int | None] = {}
    for what, *rest in events:
        if what == "wait":
            now += rest[0]  # type: ignore[operator]  # a number
            continue
        number = int(rest[0])  # type: ignore[call-overload]  # one
        draft = table.registry.copy()
        if what == "add" and number not in draft:
            draft.register(entry(number), CONFIG)
            last[number] = None
            table.adopt(draft, now)
        elif what == "remove":
            draft.remove(number)
            last.pop(number, None)
            table.adopt(draft, now)
        elif what == "look":
            table.record(entry(number), rest[1], now)  # type: ignore[arg-type]  # a load or None
            if number in last:
                last[number] = rest[1]  # type: ignore[assignment]  # the same
        shown = {number for number, load in last.items() if load is not None}
        assert set(ids(table.shown(ANY, MINE))) == shown
        assert set(ids(table.due(now + 10))) == last.keys()  # nobody is forgotten for longer than the interval
        assert not any(table.given_up(entry(number), now) for number in shown)
