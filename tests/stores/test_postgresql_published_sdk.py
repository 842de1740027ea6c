"""The published Python SDK with two trial datastores that share a PostgreSQL: what one stores, the other has."""

from __future__ import annotations

import pytest

from tests.interop.conftest import foreign_python, project, scene  # noqa: F401  fixtures
from tests.interop.scenes import Scene, actor, field
from tests.interop.test_published_sdk_datastore import check_selections, check_whole, talk, wait_ended

pytestmark = [pytest.mark.stores, pytest.mark.postgresql, pytest.mark.timeout(120)]


def test_what_was_said_in_a_trial(scene: Scene, database: str) -> None:  # noqa: F811  the fixture
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
