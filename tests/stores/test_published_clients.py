"""Published clients, unchanged, on PostgreSQL and a bucket: the Python SDK, and cogment-lab."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import trio

from tests.interop.conftest import foreign_python, project, scene  # noqa: F401  fixtures
from tests.interop.processes import Remote, Server
from tests.interop.scenes import HERE_ALONE, Scene, actor, field
from tests.interop.test_published_sdk_datastore import check_selections, check_whole, talk, wait_ended
from tests.interop.test_published_sdk_registry import BIG, content, numbers
from tests.ports import free_port
from tests.stores import s3
from trio_cogment import connect
from trio_cogment.rl import RL_SPEC
from trio_cogment.spaces import decode_action, decode_observation

pytestmark = [pytest.mark.stores, pytest.mark.timeout(120)]

LAB = Path(__file__).parent / "cogment_lab" / "program.py"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a bucket, which programs that are started reach."""
    with s3.s3_server(tmp_path) as port:
        for name, value in s3.environment(f"http://127.0.0.1:{port}").items():
            monkeypatch.setenv(name, value)
        yield f"s3://{s3.BUCKET}/published"


@pytest.mark.postgresql
def test_trials_of_the_published_sdk(scene: Scene, database: str) -> None:  # noqa: F811  the fixture
    """With two datastores that share a database: what one stores, the other has."""
    one = scene.datastore(f"--storage={database}", name="one")
    two = scene.datastore(f"--storage={database}", name="two")
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    reader = scene.told("reader", f"--datastore={two.endpoint}")
    actors, world = talk()
    parameters = {
        **field(cast, last_tick=4, **world),
        "datalog_endpoint": one.endpoint,
        "nb_buffered_ticks": 3,
        "actors": [actor(endpoint=cast, **one_of_them) for one_of_them in actors],
    }
    remote.ask("start", trial="whole", parameters=parameters)
    (info,) = wait_ended(scene, reader, "whole")
    assert (info["user"], info["samples"]) == ("remote", 5)
    samples = reader.ask("samples", trials=["whole"])
    check_whole(samples)
    check_selections(reader, samples)
    for program in (remote, reader):
        program.leave()
    scene.end(orchestrator, one, two)


def test_models_of_the_published_sdk(scene: Scene, bucket: str) -> None:  # noqa: F811  the fixture
    """What one registry stores in a bucket, its successor on another machine has, and numbers go on."""

    def registry(name: str) -> tuple[Server, Remote]:
        server = scene.ours(name, "services", "model_registry", *HERE_ALONE, f"--archive_dir={bucket}")
        return server, scene.told("models", f"--registry={server.endpoint}", name=f"models-{name}")

    server, models = registry("one")
    assert models.ask("send", model="pilot", stored=True, text="first")["iteration"] == 1
    assert models.ask("send", model="pilot", stored=True, text="x", times=BIG)["iteration"] == 2
    models.ask("update", model="pilot", properties={"made_by": "us"})
    models.leave()
    scene.end(server)
    server, models = registry("two")
    assert models.ask("models") == {"pilot": {"made_by": "us"}}
    assert numbers(models.ask("iterations", model="pilot")) == [1, 2]
    assert models.ask("retrieve", model="pilot", iteration=1) == content("first")
    assert models.ask("retrieve", model="pilot") == content("x", BIG)
    assert models.ask("send", model="pilot", stored=True, text="last")["iteration"] == 3
    models.leave()
    scene.end(server)


@pytest.mark.postgresql
def test_cogment_lab(scene: Scene, database: str, bucket: str) -> None:  # noqa: F811  the fixture
    """Its client plays trials, and reads them from a second datastore; they are what CartPole alone does."""
    server = scene.ours("serve", "serve", *HERE_ALONE, f"--storage={database}", f"--archive_dir={bucket}")
    second = scene.datastore(f"--storage={database}", name="second")
    ports = [one.endpoint.rpartition(":")[2] for one in (server, second)] + [str(free_port()) for _ in range(2)]
    lab = scene.start("lab", os.environ["TRIO_COGMENT_LAB_PYTHON"], str(LAB), *ports)
    lab.may_end = True
    assert lab.wait(60) == 0, lab.output
    told = [json.loads(line) for line in lab.output.splitlines() if line.startswith("{")]
    assert [one["trial_id"] for one in told] == ["lab-7", "lab-8"]
    for one in told:
        seed = int(one["trial_id"].removeprefix("lab-"))
        observations, rewards = bare(seed)
        np.testing.assert_array_equal(np.array(one["observations"], np.float32), observations[:-1])
        np.testing.assert_array_equal(np.array(one["next_observations"], np.float32), observations[1:])
        np.testing.assert_array_equal(np.array(one["last_observation"][0], np.float32), observations[-1])
        assert one["actions"] == [1] * len(rewards)
        assert one["rewards"] == rewards
        assert one["done"] == [0.0] * (len(rewards) - 1) + [1.0]
        ours = trio.run(read, server.endpoint, one["trial_id"])
        np.testing.assert_array_equal(ours[0], observations)
        assert ours[1] == one["actions"]
    scene.end(server, second)


def bare(seed: int) -> tuple[np.ndarray, list[float]]:
    """Return the observations and the rewards of an episode of CartPole in which the cart always goes right."""
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=seed)
    observations, rewards, ended = [observation], [], False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(1)
        observations.append(observation)
        rewards.append(float(reward))
        ended = terminated or truncated
    return np.array(observations), rewards


async def read(endpoint: str, trial_id: str) -> tuple[np.ndarray, list[int]]:
    """Return the observations and actions of a trial by our client."""
    observations, actions = [], []
    async with connect(endpoint, spec=RL_SPEC, variables={}) as client:
        async for sample in (await client.datastore()).samples(trial_id):
            one = sample.actors["gym"]
            if one.observation is not None:
                observations.append(decode_observation(one.observation).value)
            if one.action is not None:
                one_hot = np.ravel(decode_action(one.action))  # of a discrete space; empty: it acts no more
                actions += np.flatnonzero(one_hot).tolist()
    return np.array(observations), actions
