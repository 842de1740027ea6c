"""Shares: nobody has more than the limit for all, or for one, and everything comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.access import THIS_PROCESS, anonymous
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.budget.shares import Shares, share_of

STEPS = st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.booleans(), st.integers(1, 4)), max_size=60)


@given(STEPS, st.integers(1, 12), st.integers(1, 8))
def test_each_has_its_share_and_all_have_the_limit(steps: list[tuple[str, bool, int]], limit: int, share: int) -> None:
    shares = Shares("things", ("max_things", limit), ("max_peer_things", share))
    held: dict[str, list[int]] = {"a": [], "b": [], "": []}
    for account, taking, amount in steps:
        total = sum(map(sum, held.values()))
        if taking:
            full = "max_things" if total + amount > limit else ""
            if not full and account and sum(held[account]) + amount > share:
                full = "max_peer_things"
            if full:
                with pytest.raises(
                    ResourceExhaustedError,
                    match=f"too many things: {full} is {limit if full == 'max_things' else share};",
                ):
                    shares.take(account, amount)
            else:
                shares.take(account, amount)
                held[account].append(amount)
        elif held[account]:
            shares.count(account, -held[account].pop())
        assert {name: shares.used_by(name) for name in held} == {name: sum(each) for name, each in held.items()}
        assert shares.used == sum(map(sum, held.values()))
        assert all(count.kept == count.counted for count in shares.recount())


def test_one_is_there_for_the_time_of_a_block() -> None:
    shares = Shares("things", ("max_things", 2), ("max_peer_things", 1))
    full, own = "max_things is 2; try again when some are gone", "max_peer_things is 1; try again when some of yours"
    with shares.taken("a"), shares.taken("b"), pytest.raises(ResourceExhaustedError, match=full):
        shares.take("c")
    with shares.taken("a"):
        with pytest.raises(ResourceExhaustedError, match=own):
            shares.take("a")
        shares.take("")  # this process has what is there
    assert shares.used == 1


def test_whose_share_it_is() -> None:
    """Callers on this machine of whom nothing is known are one account; the process itself is none."""
    assert share_of(THIS_PROCESS) == ""
    assert share_of(anonymous("ipv4:127.0.0.1:5000")) == share_of(anonymous("ipv4:127.0.0.1:6000")) == "ipv4:127.0.0.1"
    assert share_of(anonymous("unix:")) == "unix"
