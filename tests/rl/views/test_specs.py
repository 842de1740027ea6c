"""Specifications of views: Gymnasium makes a view again by what they say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest

from trio_cogment.rl.views.gymnasium import register, spec_of


def spec(target: Any = "Pendulum-v1", *, name: str = "lab/Swing-v3", inner: Any = None, remote: bool = False) -> Any:
    environment = None if remote else SimpleNamespace(env=SimpleNamespace(spec=inner))
    match: Any = SimpleNamespace(name=name, environment=environment)
    return spec_of(target, match, {"seat": "ann"})


def test_a_view_is_made_by_its_environment_and_arguments() -> None:
    found = spec()
    assert found.id == "trio_cogment/Swing-v3"
    assert found.kwargs == {"environment": "Pendulum-v1", "seat": "ann"}
    assert found.entry_point == "trio_cogment.rl.views.gymnasium:make"
    assert found.vector_entry_point == "trio_cogment.rl.views.vector:make_vec"
    assert (found.nondeterministic, found.reward_threshold) == (False, None)
    assert (found.disable_env_checker, found.order_enforce) == (True, False)


def test_what_the_environment_says_of_itself_stays_said() -> None:
    found = spec(inner=SimpleNamespace(nondeterministic=True, reward_threshold=195.0))
    assert (found.nondeterministic, found.reward_threshold) == (True, 195.0)
    found = spec(inner=SimpleNamespace())
    assert (found.nondeterministic, found.reward_threshold) == (False, None)


def test_trials_elsewhere_have_no_name_of_an_environment() -> None:
    assert spec(remote=True).id == "trio_cogment/Trial-v0"


def test_an_environment_that_was_made_already() -> None:
    made = gymnasium.make("CartPole-v1").unwrapped
    known = made.spec
    assert known is not None
    found = spec(made)
    assert found.kwargs["environment"] == known.make
    made.spec = None
    assert spec(made) is None


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("CartPole-v1", "", "trio_cogment/CartPole-v1"),
        ("some.module:Own-v2", "", "trio_cogment/Own-v2"),
        ("ALE/Pong-v5", "", "trio_cogment/Pong-v5"),
        ("CartPole-v1", "mine/Pole-v0", "mine/Pole-v0"),
    ],
)
def test_trials_that_are_registered(name: str, given: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium.envs.registration, "registry", {})
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    assert register(name, id=given, seat="ann") == expected
    assert register(name, id=given) == expected
    found = gymnasium.registry[expected]
    assert found.kwargs["seat"] == "ann"
    assert found.entry_point == "trio_cogment.rl.views.gymnasium:make"
    assert found.vector_entry_point == "trio_cogment.rl.views.vector:make_vec"
    assert (found.disable_env_checker, found.order_enforce) == (True, False)
    assert name in str(found.kwargs["environment"])
