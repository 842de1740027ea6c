"""Environments by id, by name, from objects and functions."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import pytest

from tests.environments._samples import Inventory
from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.environments.gymnasium import GymnasiumEnvironment
from trio_cogment.environments.making import make_environment, maker_of


def test_by_id_with_arguments() -> None:
    found = make_environment("FrozenLake-v1", map_name="8x8", render_mode="ansi")
    assert found.name == "FrozenLake-v1"
    assert found.metadata["render_mode"] == "ansi"
    assert repr(found.observation_spaces["player_0"]) == "Discrete(64)"


def test_by_a_module_that_registers_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "lake_of_mine.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Mine-v0', 'gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv', max_episode_steps=2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert make_environment("lake_of_mine:Mine-v0").name == "Mine-v0"
    finally:
        gymnasium.registry.pop("Mine-v0", None)


def test_objects_and_functions() -> None:
    env = Inventory()
    found = make_environment(env)
    assert isinstance(found, GymnasiumEnvironment)
    assert found.env is env
    assert make_environment(found) is found
    assert make_environment(Inventory, length=7).env.length == 7  # type: ignore[attr-defined]  # of the adapter
    assert make_environment(lambda: make_environment("CartPole-v1")).name == "CartPole-v1"
    with pytest.raises(InvalidArgumentError, match=r"environment 'Inventory': arguments: expected none"):
        make_environment(env, length=7)


def test_a_maker_makes_many() -> None:
    make = maker_of("FrozenLake-v1", map_name="8x8")
    first, second = make(), make(is_slippery=False)
    assert first is not second
    assert repr(second.observation_spaces["player_0"]) == "Discrete(64)"
    once = maker_of(Inventory())
    once()
    with pytest.raises(InvalidArgumentError, match=r"expected an id or a function that makes it, to make another"):
        once()
    env = gymnasium.make("CartPole-v1", max_episode_steps=9)
    again = maker_of(env)
    found: list[Any] = [again(), again()]
    assert found[0].env is env
    assert found[1].env.spec.max_episode_steps == 9


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("CartPole-v77", r"environment 'CartPole-v77': .*CartPole"),
        ("NoSuchThing-v0", r"environment 'NoSuchThing-v0': .*NoSuchThing"),
        ("nowhere/Thing-v0", r"environment 'nowhere/Thing-v0': .*nowhere"),
        ("no_such_module:Thing-v0", r"environment 'no_such_module:Thing-v0': there is no module 'no_such_module'"),
        ("nothing_v2", r"environment 'nothing_v2': expected a module, or one of pettingzoo.classic"),
        ("no.such.thing_v2", r"environment 'no.such.thing_v2': expected a module"),
        ("Pendulum-v0", r"environment 'Pendulum-v0': .*Pendulum-v1"),
        ("CartPoel-v1", r"environment 'CartPoel-v1': .*Did you mean: `CartPole`"),
        # PettingZoo's, whose registry has ids only since 1.27
        ("classic/connect-four-v3", r"none of that name; did you mean '(classic/)?connect_four[-_]v3'\?"),
        ("connect-four-v3", r"did you mean '(classic/)?connect_four[-_]v3'\?"),
        ("Classic/rps-v2", r"did you mean '(classic/)?rps[-_]v2'\?"),
        ("classics/rps-v2", r"did you mean '(classic/)?rps[-_]v2'\?"),
        ("classic/rps-v1", r"did you mean '(classic/)?rps[-_]v2'\?"),
        ("rps", r"did you mean '(classic/)?rps[-_]v2'\?"),
        ("butterfly/pistonbal-v6", r"did you mean '(butterfly/)?pistonball[-_]v6'\?"),
        ("knights_archers_zombies_v9", r"did you mean 'knights_archers_zombies_v1\d'\?"),
        ("connect_fore_v3", r"did you mean 'connect_four_v3'\?"),
        ("pettingzoo.classic.rps_v1", r"did you mean 'pettingzoo.classic.rps_v2'\?"),
        ("mpe/simple_spread_v3", r"the package mpe2 \(pip install mpe2\); did you mean 'mpe2.simple_spread_v3'\?"),
        ("pettingzoo.mpe.simple_v3", r"the package mpe2 \(pip install mpe2\); did you mean 'mpe2.simple_v3'\?"),
        ("simple_spread_v3", r"the package mpe2 \(pip install mpe2\); did you mean 'mpe2.simple_spread_v3'\?"),
        ("ConnectFour-v3", r"did you mean '(classic/)?connect_four[-_]v3'\?"),
        ("classic/ConnectFour-v3", r"did you mean '(classic/)?connect_four[-_]v3'\?"),
        # of packages with other names
        ("ALE/Pong-v9", r"environment 'ALE/Pong-v9': .*ALE"),
        ("Pong-v5", r"environment 'Pong-v5': .*doesn't exist"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_names_that_do_not_exist(target: str, text: str) -> None:
    with pytest.raises(NotFoundError, match=text):
        make_environment(target)


def test_a_package_that_an_environment_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    # A game that no other test imports: PettingZoo's registry remembers what it has imported.
    monkeypatch.setitem(sys.modules, "pygame", None)
    for target in ("go_v5", "pettingzoo.classic.go_v5", "classic/go-v5"):
        with pytest.raises(MissingExtraError, match=rf"environment '{target}': .*pip install 'pettingzoo\[classic\]'"):
            make_environment(target)


@pytest.mark.parametrize("target", [7, None, object()])
def test_what_is_no_environment(target: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"environment: expected an id, an environment of Gymnasium, Petting"
    ):
        make_environment(target)
    with pytest.raises(
        InvalidArgumentError, match=r"environment: expected an id, an environment of Gymnasium, Petting"
    ):
        make_environment(lambda: target)


@pytest.mark.parametrize(
    ("package", "extra", "target"),
    [
        ("gymnasium", "gym", "CartPole-v1"),
        ("pettingzoo", "pettingzoo", "rps_v2"),
        ("pettingzoo", "pettingzoo", "classic/rps-v2"),
        ("pyspiel", "openspiel", "openspiel/kuhn_poker"),
    ],
)
def test_a_missing_extra(monkeypatch: pytest.MonkeyPatch, package: str, extra: str, target: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    package = {"pyspiel": "open-spiel"}.get(package, package)
    with pytest.raises(
        MissingExtraError, match=rf"{package} is not installed; .* pip install 'trio-cogment\[{extra}\]'"
    ):
        make_environment(target)


@pytest.mark.parametrize("target", ["rps_v2", "classic/rps-v2", "pettingzoo.classic.rps_v2"])
def test_a_limit_that_pettingzoo_reads_two_ways(target: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"'{target}': max_cycles: expected a positive number; -1 does not"):
        make_environment(target, max_cycles=-1)
