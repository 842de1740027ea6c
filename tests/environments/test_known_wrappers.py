"""Wrappers of other packages of which the log says what to expect; small classes stand for them here."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.environments._games import Rps
from trio_cogment.environments import known_wrappers
from trio_cogment.environments.making import wrap


class MeltingPotCompatibilityV0(Rps):
    """Called like Shimmy's."""


MeltingPotCompatibilityV0.__module__ = "shimmy.meltingpot_compatibility"


class Outer(Rps):
    """A wrapper around another environment."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.env = env


def test_what_a_wrapper_gets_wrong_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_wrappers, "_told", set())
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        assert wrap(Outer(MeltingPotCompatibilityV0())).agents == ("player_0", "player_1")
    (record,) = caplog.records
    assert record.getMessage().startswith("MeltingPotCompatibilityV0 of shimmy: it tells every last step as terminated")
    assert record.getMessage().endswith("(docs/peers.md)")


@pytest.mark.parametrize(
    "name",
    ["MeltingPotCompatibilityV0", "DmControlCompatibilityV0", "BSuiteCompatibilityV0", "DmLabCompatibilityV0"],
)
def test_advice_for_limits_that_are_told_as_ends(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No adapter tells them apart, ours neither: what was told is a discount of 0 in both cases."""
    monkeypatch.setattr(known_wrappers, "_told", set())
    wrap(type(name, (Rps,), {"__module__": "shimmy.dm_env"})())
    (record,) = caplog.records
    assert "max_steps below that limit" in record.getMessage()


def test_ends_that_are_told_the_wrong_way_round(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_wrappers, "_told", set())
    wrap(type("DmControlMultiAgentCompatibilityV0", (Rps,), {"__module__": "shimmy.dm_env"})())
    (record,) = caplog.records
    assert "the wrong way round; the environment of dm_env itself is taken" in record.getMessage()


def test_nothing_of_others(caplog: pytest.LogCaptureFixture) -> None:
    env = Outer(Rps())
    env.env.env = env  # it leads back to itself
    wrap(env)
    assert not caplog.records
