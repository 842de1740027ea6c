"""Connections that pass as established ones."""

from __future__ import annotations

from trio_cogment.budget.turn_order import ConnectionLane, Lane


class Engine:
    def __init__(self, *, client_side: bool = False) -> None:
        self.client_side = client_side
        self.oldest = 0
        self.calls_begun = 0


def test_a_client_has_asked_for_what_it_gets() -> None:
    lane = ConnectionLane(Engine(client_side=True))
    assert (lane.lane, lane.until) == (Lane.ESTABLISHED, float("inf"))


def lane_at(lane: ConnectionLane, now: float) -> Lane:
    lane.look(now)
    assert lane.until == now + 0.5
    return lane.lane


def test_a_call_that_stays_open_makes_a_connection_an_established_one() -> None:
    engine = Engine()
    lane = ConnectionLane(engine)
    assert lane_at(lane, 0.0) is Lane.OTHERS
    engine.oldest = engine.calls_begun = 1
    assert lane_at(lane, 1.0) is Lane.OTHERS
    assert lane_at(lane, 1.5) is Lane.ESTABLISHED
    engine.oldest = 0
    assert lane_at(lane, 2.0) is Lane.OTHERS


def test_calls_one_after_the_other_do_not() -> None:
    engine = Engine()
    lane = ConnectionLane(engine)
    for number in range(1, 40, 2):
        engine.oldest = engine.calls_begun = number
        assert lane_at(lane, number) is Lane.OTHERS


def test_who_makes_many_calls_beside_it_is_not_one_for_a_while() -> None:
    engine = Engine()
    engine.oldest = engine.calls_begun = 1
    lane = ConnectionLane(engine)
    lane.look(0.0)
    assert lane_at(lane, 1.0) is Lane.ESTABLISHED
    engine.calls_begun += 16
    assert lane_at(lane, 2.0) is Lane.ESTABLISHED
    engine.calls_begun += 17
    assert lane_at(lane, 3.0) is Lane.OTHERS
    assert lane_at(lane, 4.0) is Lane.ESTABLISHED


def test_a_crowd_of_calls_makes_it_another_one_at_once() -> None:
    lane = ConnectionLane(Engine(client_side=True))
    lane.crowd()
    assert lane.lane is Lane.OTHERS
