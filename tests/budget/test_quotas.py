"""Ledgers: they never give more than there is, and everything comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.access import Quotas
from trio_cogment.base.errors import InvalidArgumentError, ResourceExhaustedError
from trio_cogment.budget.quotas import Ledger

STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(0, 5)), max_size=60)
AMOUNTS = st.none() | st.integers(0, 2**63 - 1)


@given(STEPS, st.none() | st.integers(0, 8))
def test_no_account_has_more_than_its_limit_and_none_minds_the_other(
    steps: list[tuple[str, bool, int]], limit: int | None
) -> None:
    ledger = Ledger("things")
    held: dict[str, list[int]] = {"a": [], "b": []}
    for account, taking, amount in steps:
        before = sum(held[account])
        if taking:
            fits = limit is None or before + amount <= limit or amount == 0
            if fits:
                ledger.take(account, amount, limit)
                held[account].append(amount)
            else:
                with pytest.raises(ResourceExhaustedError, match=f"the quota of {limit} things of this account is"):
                    ledger.take(account, amount, limit)
        elif held[account]:
            ledger.give_back(account, held[account].pop())
        assert {name: ledger.used(name) for name in held} == {name: sum(amounts) for name, amounts in held.items()}
    for account, amounts in held.items():
        for amount in amounts:
            ledger.give_back(account, amount)
    assert ledger.accounts == {}  # nobody is remembered who has nothing


def test_what_was_not_taken_cannot_be_given_back() -> None:
    ledger = Ledger("things")
    ledger.take("a", 2, None)
    with pytest.raises(ValueError, match="a: 3 things given back, of 2"):
        ledger.give_back("a", 3)


def test_a_quota_may_shrink_below_what_is_used() -> None:
    ledger = Ledger("things")
    ledger.take("a", 5, 5)
    ledger.take("a", 0, 3)
    with pytest.raises(ResourceExhaustedError):
        ledger.take("a", 1, 3)
    ledger.give_back("a", 3)
    ledger.take("a", 1, 3)


@pytest.mark.parametrize("value", [-1, 2**63, 1.5, True, "1"])
def test_quotas_are_numbers(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match="quota trials: expected a whole number"):
        Quotas(trials=value)  # type: ignore[arg-type]  # what a token of another program may say


@given(st.builds(Quotas, trials=AMOUNTS, stored_bytes=AMOUNTS, models=AMOUNTS))
def test_quotas_are_read_as_they_were_written(quotas: Quotas) -> None:
    assert Quotas.parse(quotas.text()) == quotas


@pytest.mark.parametrize("text", ["trials", "trials=", "trials=x", "trials=1=2", "lions=1"])
def test_other_text_is_no_quota(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^quotas: expected such as 'trials=2', got '{text}'$"):
        Quotas.parse(text)
