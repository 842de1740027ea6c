"""Limits of one peer: nobody has more than they say, and everything comes back."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.access import Identity
from trio_cogment.access.identity import EVERYTHING, anonymous
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.budget.peer_limits import Bucket, PeerConnection, PeerLimits, is_counted

NEAR = anonymous("ipv4:127.0.0.1:1000")
FAR = anonymous("ipv4:192.0.2.7:1000")
OTHER = anonymous("ipv4:192.0.2.8:1000")
TOKEN = Identity(account="token:robot", local=True, grant=EVERYTHING)


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def limits_of(clock: Clock | None = None, **values: float) -> PeerLimits:
    return PeerLimits(RpcConfig(**values), clock or Clock())  # type: ignore[arg-type]  # the values are of any field


@pytest.mark.parametrize(
    ("identity", "counted"),
    [
        (NEAR, False),
        (anonymous("ipv6:[::1]:1000"), False),
        (anonymous("ipv6:[::ffff:127.0.0.1]:1000"), False),
        (anonymous("unix:"), False),
        (anonymous("stream"), False),
        (FAR, True),
        (anonymous("ipv6:[2001:db8::1]:1000"), True),
        (TOKEN, True),
        (Identity(account="certificate:lab", local=True, grant=EVERYTHING), True),
    ],
)
def test_peers_of_this_machine_count_only_by_their_tokens(identity: Identity, counted: bool) -> None:
    assert is_counted(identity) is counted


@given(st.integers(1, 20), st.integers(1, 5), st.lists(st.floats(0, 3), max_size=200))
def test_a_bucket_never_lets_more_through_than_its_rate_and_one_burst(
    capacity: int, rate: int, pauses: list[float]
) -> None:
    bucket = Bucket(capacity, rate, 0.0)
    now, passed = 0.0, 0
    for pause in pauses:
        now += pause
        passed += bucket.take(now)
        assert passed <= capacity + now * rate + 1e-6
    assert bucket.full(now + capacity / rate + 1e-6)


ACCOUNTS = [NEAR, FAR, OTHER, TOKEN]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("connect"), st.sampled_from(range(4))),
        st.tuples(st.sampled_from(["call", "end", "reset", "close"]), st.integers(0, 20)),
        st.tuples(st.just("wait"), st.integers(0, 3)),
    ),
    max_size=150,
)


@given(STEPS, st.integers(1, 8), st.integers(1, 4), st.integers(1, 12))
def test_nobody_has_more_than_the_limits_and_everything_comes_back(
    steps: list[tuple[str, int]], connections: int, of_peer: int, calls: int
) -> None:
    clock = Clock()
    limits = limits_of(
        clock,
        max_connections=connections,
        max_peer_connections=of_peer,
        max_calls=calls,
        max_peer_connects=6,
        max_peer_resets=3,
        max_peer_calls_per_second=2.0,
        peer_call_burst=5,
    )
    live: list[tuple[PeerConnection, Identity]] = []
    for step, number in steps:
        if step == "connect":
            with suppress(ResourceExhaustedError):
                live.append((limits.connect(ACCOUNTS[number]), ACCOUNTS[number]))
        elif step == "wait":
            clock.now += number
        elif live:
            connection, identity = live[number % len(live)]
            if step == "call":
                with suppress(ResourceExhaustedError):
                    connection.begin_call(identity)
            elif step == "end" and connection.calls:
                connection.end_call()
            elif step == "reset":
                connection.count_reset()
            elif step == "close":
                live.remove((connection, identity))
                connection.close()
        assert limits.connections == len(live) <= connections
        assert limits.calls == sum(connection.calls for connection, _ in live) <= calls
        for account in (FAR, OTHER, TOKEN):
            assert sum(identity is account for _, identity in live) <= of_peer
    for connection, _ in live:
        connection.close()
    assert (limits.connections, limits.calls) == (0, 0)


def test_those_who_want_all_they_can_get_leave_as_much_as_each_has() -> None:
    limits = limits_of(max_calls=1000)
    greedy = [limits.connect(NEAR) for _ in range(9)]
    for _ in range(1000):
        for connection in greedy:
            with suppress(ResourceExhaustedError):
                connection.begin_call(NEAR)
    assert all(connection.calls == 100 for connection in greedy)
    late = limits.connect(NEAR)
    for _ in range(50):
        late.begin_call(NEAR)
    with pytest.raises(ResourceExhaustedError, match="max_calls"):
        late.begin_call(NEAR)


def test_calls_count_for_whoever_makes_them() -> None:
    limits = limits_of(max_peer_calls_per_second=1.0, peer_call_burst=2)
    connection = limits.connect(FAR)
    for _ in range(2):
        connection.begin_call(TOKEN)
    with pytest.raises(ResourceExhaustedError, match="max_peer_calls_per_second"):
        connection.begin_call(TOKEN)
    connection.begin_call(FAR)


def test_connects_and_resets_recover_with_time() -> None:
    clock = Clock()
    limits = limits_of(clock, max_peer_connects=2, max_peer_resets=2, flood_interval_seconds=10.0)
    one, two = limits.connect(FAR), limits.connect(FAR)
    with pytest.raises(ResourceExhaustedError, match="max_peer_connects: 2 connections of one peer in 10 s"):
        limits.connect(FAR)
    limits.connect(OTHER)  # somebody else
    assert one.count_reset()
    assert two.count_reset()
    assert not one.count_reset()  # together
    clock.now = 5.0
    assert one.count_reset()
    assert not two.count_reset()
    limits.connect(FAR)


def test_peers_that_are_gone_are_forgotten() -> None:
    clock = Clock()
    limits = limits_of(clock)
    for number in range(10_000):
        clock.now += 1.0
        limits.connect(anonymous(f"ipv4:198.51.{number // 250}.{number % 250}:1")).close()
        assert len(limits.accounts) <= 64
    limits.connect(FAR)
    clock.now += 3600
    for number in range(100):
        limits.connect(anonymous(f"ipv4:203.0.113.{number}:1")).close()
    assert FAR.account in limits.accounts  # it is still there


def test_those_who_are_gone_are_looked_for_when_there_are_twice_as_many() -> None:
    """A look takes a step for each account, so that one at every newcomer would be many in a crowd that stays."""
    clock = Clock()
    limits = limits_of(clock)
    for number in range(100):
        limits.connect(anonymous(f"ipv4:198.51.100.{number}:1"))
    sizes = []
    for number in range(40):
        clock.now += 3600
        limits.connect(anonymous(f"ipv4:203.0.113.{number}:1")).close()
        sizes.append(len(limits.accounts))
    # The first 64 had all stayed; the next look finds those who came and went.
    assert sizes == [*range(101, 129), *range(101, 113)]
