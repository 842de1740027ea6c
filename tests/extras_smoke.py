"""Smoke test of each extra of the package, in a few lines; and the words where an extra is missing.

`nox -s extras` runs it as a program, with the names of the extras that are installed, in environments that have these
and nothing else. It must not import anything that a test needs.
"""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio_cogment
from trio_cogment.base.errors import MissingExtraError


def arrays() -> None:
    import numpy as np

    from trio_cogment.spaces import decode_array, encode_array

    assert decode_array(encode_array(np.arange(3))).tolist() == [0, 1, 2]


def generate() -> None:
    importlib.import_module("grpc_tools.protoc")


def gym() -> None:
    from trio_cogment.rl import make

    with make("CartPole-v1") as env:
        observation, _ = env.reset(seed=1)
        assert observation.shape == (4,)
        assert env.step(0)[1] == 1.0


def pettingzoo() -> None:
    from gymnasium import spaces
    from pettingzoo import ParallelEnv

    from trio_cogment.rl import make_parallel

    class Once(ParallelEnv):  # type: ignore[misc]  # it has no types
        possible_agents = ("player_0", "player_1")
        metadata: dict[str, Any] = {}  # noqa: RUF012  PettingZoo's form

        def observation_space(self, agent: str) -> Any:
            return spaces.Discrete(2)

        action_space = observation_space

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            self.agents = list(self.possible_agents)
            return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

        def step(self, actions: dict[str, Any]) -> Any:
            everybody, self.agents = self.agents, []
            ends = dict.fromkeys(everybody, True), dict.fromkeys(everybody, False)
            return actions, dict.fromkeys(everybody, 1.0), *ends, {agent: {} for agent in everybody}

    game = make_parallel(Once)
    game.reset(seed=1)
    observations, rewards, *_ = game.step({"player_0": 1, "player_1": 0})
    assert (observations["player_0"], rewards["player_1"], game.agents) == (1, 1.0, [])
    game.close()


def dm_env() -> None:
    import dm_env as package
    import numpy as np
    from dm_env import specs

    from trio_cogment.environments.making import make_environment

    class Still(package.Environment):  # type: ignore[misc]  # it has no types
        def reset(self) -> Any:
            return package.restart(np.zeros(1))

        def step(self, action: Any) -> Any:
            return package.termination(1.0, np.zeros(1))

        def observation_spec(self) -> Any:
            return specs.Array((1,), float)

        def action_spec(self) -> Any:
            return specs.DiscreteArray(2)

    environment = make_environment(Still())
    environment.reset(None, None)
    (observation,) = environment.step(dict.fromkeys(environment.agents, 1)).values()
    assert observation.terminated


async def one_step(session: Any) -> None:
    from trio_cogment.spaces import Discrete, Observation, encode_observation

    space = Discrete(2)
    first = Observation(0, observation_space=space, action_space=space)
    await session.start([("*", encode_observation(first, space))])
    async for event in session.all_events():
        if event.actions is not None:
            await session.end([("*", encode_observation(Observation(1, 0.1, terminated=True), space))])


def stored(folder: str) -> str:
    """Store a trial of one step; return the storage's address."""
    from trio_cogment.rl import policy, run_trials

    address = f"sqlite:{folder}/trials.db"
    results = run_trials(1, environment=one_step, seats={"player_0": policy(lambda _value: 1)}, store=address)
    assert results.returns_of("player_0").tolist() == [0.1], results.failures
    return address


def export() -> None:
    import pyarrow.parquet as pq

    from trio_cogment.rl import export

    with tempfile.TemporaryDirectory() as folder:
        export(stored(folder), parquet=f"{folder}/data")
        (file, *_) = Path(folder, "data", "data").glob("*.parquet")
        assert pq.read_table(file).num_rows == 2


def minari() -> None:
    import os

    import minari as package

    from trio_cogment.rl import export

    with tempfile.TemporaryDirectory() as folder:
        os.environ["MINARI_DATASETS_PATH"] = folder
        export(stored(folder), minari="smoke/one-v0")
        (name,) = package.list_local_datasets()
        assert package.load_dataset(name).total_episodes == 1


def openenv() -> None:
    importlib.import_module("trio_cogment.gateways.openenv.server")
    importlib.import_module("trio_cogment.gateways.openenv.link")


def openspiel() -> None:
    from trio_cogment.environments.making import make_environment

    game = make_environment("openspiel/kuhn_poker", players=3)
    told = game.reset(1, None)
    assert [told[name].active for name in game.agents] == [True, False, False]


def s3() -> None:
    from obstore.store import MemoryStore

    from trio_cogment.base.object_store import ObjectStore

    store = ObjectStore("s3://nowhere", store=MemoryStore())
    store.check()
    store.create("key", b"data")
    assert store.get("key").data == b"data"


def ray() -> None:
    import os

    # Its processes stay on loopback.
    os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_AUTH_MODE="disabled")
    from trio_cogment.ray import workers
    from trio_cogment.rl import policy, run_trials

    seats = {"player_0": policy(lambda _value: 1)}
    results = run_trials(2, on=workers(1), environment=one_step, seats=seats)
    assert results.returns_of("player_0").tolist() == [0.1, 0.1], results.failures


def postgresql() -> None:
    from trio_cogment.base.postgresql import check_address

    check_address("postgresql://somebody@host:5432/database?sslmode=require")


def traced() -> None:
    """Open tracing for nobody."""
    import trio

    from trio_cogment.base.config import TracingConfig
    from trio_cogment.base.tracing import open_tracing

    async def main() -> None:
        settings = TracingConfig(endpoint="http://127.0.0.1:9", flush_seconds=0.1)
        async with open_tracing(settings) as tracing:
            with tracing.span("smoke", {"extra": "otel"}):
                pass
            assert tracing.figures()["ended"] == 1

    trio.run(main)


#: What shows that an extra works, by its name.
SMOKE: dict[str, Callable[[], None]] = {
    "arrays": arrays,
    "generate": generate,
    "gym": gym,
    "pettingzoo": pettingzoo,
    "dm-env": dm_env,
    "export": export,
    "minari": minari,
    "openenv": openenv,
    "openspiel": openspiel,
    "s3": s3,
    "ray": ray,
    "postgresql": postgresql,
    "otel": traced,
}
#: A package that an extra brings: others may bring it, too.
BROUGHT = {
    "arrays": "numpy",
    "generate": "grpc_tools",
    "gym": "gymnasium",
    "pettingzoo": "pettingzoo",
    "dm-env": "dm_env",
    "export": "pyarrow",
    "minari": "minari",
    "openenv": "numpy",
    "openspiel": "pyspiel",
    "s3": "obstore",
    "ray": "ray",
    "postgresql": "psycopg",
    "otel": "opentelemetry.sdk",
}


def is_there(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ModuleNotFoundError:
        return False
    return True


def exported(**target: str) -> None:
    from trio_cogment.rl import export

    with tempfile.TemporaryDirectory() as folder:
        export(stored(folder) if is_there("numpy") else "memory:", **target)


def without_ray() -> None:
    from trio_cogment.ray import workers
    from trio_cogment.rl import random, run_trials

    run_trials(1, on=workers(1), environment=one_step, seats={"player_0": random()})


def missing(extra: str, installed: list[str]) -> None:
    """Check that what needs an extra says how to install it."""
    needs: dict[str, Callable[[], object]] = {
        "arrays": lambda: importlib.import_module("trio_cogment.spaces"),
        "gym": lambda: importlib.import_module("trio_cogment.rl").make("CartPole-v1"),
        "pettingzoo": lambda: importlib.import_module("trio_cogment.rl").make_parallel("rps_v2"),
        "export": lambda: exported(parquet="data"),
        "minari": lambda: exported(minari="a/b-v0"),
        "s3": lambda: importlib.import_module("trio_cogment.base.object_store").ObjectStore("s3://bucket"),
        "ray": without_ray,
        "postgresql": postgresql,
        "otel": traced,
    }
    if extra not in needs:
        return
    try:
        needs[extra]()
    except MissingExtraError as error:
        # Without NumPy, or Gymnasium, that is what is asked for first.
        found = re.search(r"pip install 'trio-cogment\[([\w-]+)\]'", str(error))
        if found is None or found[1] in installed:
            raise
        return
    raise AssertionError(f"{extra}: expected a MissingExtraError")


def main(installed: list[str]) -> None:
    for extra in installed:
        SMOKE[extra]()
    for extra, package in BROUGHT.items():
        if extra not in installed and not is_there(package):
            missing(extra, installed)
    version = sys.version.split()[0]
    print(f"trio-cogment {trio_cogment.__version__}, Python {version}: {', '.join(installed) or 'no extra'}: well")


if __name__ == "__main__":
    main(sys.argv[1:])
