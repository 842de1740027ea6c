"""Both of the published SDK's model registry clients against our model registry.

The client is `app/models.py`, which does what it is told from here.
"""

from __future__ import annotations

import hashlib
import signal

import pytest

from tests.interop.processes import Remote
from tests.interop.scenes import Scene, Spec

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

#: More than two of the SDK's chunks, and not a whole number of them.
BIG = 5_000_001


def content(text: str, times: int = 1) -> list[object]:
    """How a model is told."""
    whole = text.encode() * times
    return [len(whole), hashlib.sha256(whole).hexdigest()]


def numbers(infos: list[Spec]) -> list[int]:
    return [info["iteration"] for info in infos]


def test_models_and_their_versions(scene: Scene) -> None:
    registry = scene.model_registry()
    models = scene.told("models", f"--registry={registry.endpoint}")
    assert models.ask("models") == {}
    assert models.ask("model", model="pilot") is None
    for order in ("retrieve", "iteration"):
        name, text = models.refusal(order, model="pilot", iteration=1)
        assert (name, text) == ("CogmentError", "Unknown model [pilot]")

    # One that has no version yet.
    assert models.ask("send", model="pilot", stored=True) is None
    assert models.ask("model", model="pilot") == {"pilot": {}}
    assert models.ask("iterations", model="pilot") == []
    assert models.ask("retrieve", model="pilot") is None
    # Stored and published ones are numbered together.
    properties = {"loss": "0.5", "empty": ""}
    first = models.ask("send", model="pilot", stored=True, text="first", properties=properties)
    assert first["timestamp"] > 0
    assert first["hash"]
    assert first | {"timestamp": 0, "hash": ""} == {
        "model": "pilot",
        "iteration": 1,
        "timestamp": 0,
        "hash": "",
        "size": 5,
        "stored": True,
        "properties": properties,
    }
    second = models.ask("send", model="pilot", stored=False, text="x", times=BIG)
    assert (second["iteration"], second["size"], second["stored"], second["properties"]) == (2, BIG, False, {})
    again = models.ask("send", model="pilot", stored=False, text="first")
    assert again["hash"] == first["hash"] != second["hash"]

    assert models.ask("retrieve", model="pilot", iteration=1) == content("first")
    assert models.ask("retrieve", model="pilot", iteration=2) == content("x", BIG)
    # Negative numbers count from the newest.
    assert models.ask("retrieve", model="pilot") == content("first")
    assert models.ask("retrieve", model="pilot", iteration=-2) == content("x", BIG)
    assert models.ask("retrieve", model="pilot", iteration=9) is None
    assert models.ask("iterations", model="pilot") == [first, second, again]
    assert [models.ask("iteration", model="pilot", iteration=n) for n in (1, -1, -3, 9)] == [first, again, first, None]

    models.ask("update", model="pilot", properties={"made_by": "us"})
    assert models.ask("model", model="pilot") == {"pilot": {"made_by": "us"}}
    # Another version leaves that alone.
    models.ask("send", model="pilot", stored=True, text="last")
    assert models.ask("models") == {"pilot": {"made_by": "us"}}
    models.ask("update", model="other/../model", properties={})
    assert models.ask("models") == {"pilot": {"made_by": "us"}, "other/../model": {}}
    models.ask("remove", model="other/../model")
    assert models.refusal("remove", model="other/../model")[0] == "NOT_FOUND"

    # What was published is gone with the process; its numbers are not given again.
    registry.process.send(signal.SIGKILL)
    assert registry.process.wait(15) == -signal.SIGKILL
    scene.processes.remove(registry.process)
    registry = scene.model_registry(name="registry-again")
    later = scene.told("models", f"--registry={registry.endpoint}", name="later")
    assert later.ask("models") == {"pilot": {"made_by": "us"}}
    kept = later.ask("iterations", model="pilot")
    assert kept[0] == first
    assert numbers(kept) == [1, 4]
    assert later.ask("retrieve", model="pilot", iteration=2) is None
    assert later.ask("send", model="pilot", stored=False, text="after")["iteration"] == 5
    for program in (models, later):
        program.leave()
    scene.end(registry)


def test_long_lists(scene: Scene) -> None:
    """The SDK asks for ten at a time, and goes on until it gets fewer."""
    registry = scene.model_registry()
    models = scene.told("models", f"--registry={registry.endpoint}")
    for number in range(1, 22):
        models.ask("send", model=f"model-{number:02}", stored=False)
        if number in (9, 10, 11, 20, 21):
            assert list(models.ask("models")) == [f"model-{n:02}" for n in range(1, number + 1)]
        models.ask("send", model="model-01", stored=number % 2 == 0, text=str(number))
        if number in (9, 10, 11, 20, 21):
            assert numbers(models.ask("iterations", model="model-01")) == list(range(1, number + 1))
    models.leave()
    scene.end(registry)


def test_following_a_model(scene: Scene) -> None:
    registry = scene.model_registry()
    learner = scene.told("models", f"--registry={registry.endpoint}", name="learner")
    actor = scene.told("models", f"--registry={registry.endpoint}", name="actor")
    # Whoever waits for a model that is not there yet asks for it once a second.
    assert actor.refusal("track", model="nobody") == ("CogmentError", "Model [nobody] not found in Model Registry")
    waiting = actor.begin("track", model="pilot", wait_seconds=60)
    learner.ask("send", model="pilot", stored=False)
    actor.ask("follow", model="pilot")
    waiting.done()
    tracked = actor.begin("tracked", model="pilot")
    first = learner.ask("send", model="pilot", stored=False, text="1")
    assert tracked.done() == {"length": 1, **first}
    assert actor.ask("followed", name="pilot", least=1)["seen"] == [first]
    newer = actor.begin("tracked", model="pilot", newer_than=1)
    second = learner.ask("send", model="pilot", stored=True, text="12", properties={"loss": "0.1"})
    assert newer.done() == {"length": 2, **second}
    assert actor.ask("followed", name="pilot", least=2) == {"seen": [first, second], "over": False, "error": None}
    # Who comes later begins with the latest there is.
    learner.ask("follow", model="pilot")
    assert learner.ask("followed", name="pilot", least=1)["seen"] == [second]
    third = learner.ask("send", model="pilot", stored=False, text="x", times=BIG)
    assert actor.ask("tracked", model="pilot", newer_than=2) == {"length": BIG, **third}
    for program, seen in ((actor, [first, second, third]), (learner, [second, third])):
        assert program.ask("followed", name="pilot", least=len(seen))["seen"] == seen

    # Without the model there is nothing to follow, and everybody hears of it.
    learner.ask("remove", model="pilot")
    for program in (actor, learner):
        error = program.ask("followed", name="pilot")["error"]
        assert error["error"] == "NOT_FOUND"
        assert "pilot" in error["text"]
    for program in (actor, learner):
        program.leave()
    scene.end(registry, expected_errors=["Unexpected aio failure", "Failed to track model [pilot]"])


def test_the_older_client(scene: Scene) -> None:
    registry = scene.model_registry()
    models = scene.told("models", f"--registry={registry.endpoint}")
    assert models.ask("old_info", model="pilot") is None
    assert models.ask("old_retrieve", model="pilot") is None
    first = models.ask("old_send", model="pilot", first=True, text="first", user_data={"layers": 3})
    assert (first["iteration"], first["size"], first["stored"]) == (1, 5, False)
    second = models.ask("old_send", model="pilot", text="second", archived=True, version_user_data={"loss": 0.5})
    assert (second["iteration"], second["stored"]) == (2, True)
    # Whoever has sent it remembers what it was given, others see texts.
    assert models.ask("old_info", model="pilot") == {"pilot": {"layers": 3}}
    reader = scene.told("models", f"--registry={registry.endpoint}", name="reader")
    check_reader(reader, first, second)
    assert [(info["hash"], info["timestamp"]) for info in reader.ask("iterations", model="pilot")] == [
        (info["hash"], info["timestamp"]) for info in (first, second)
    ]
    for program in (models, reader):
        program.leave()
    expected = ["Error retrieving model version", "Failed to retrieve model version"]
    scene.end(registry, expected_errors=expected)


def check_reader(reader: Remote, first: Spec, second: Spec) -> None:
    assert reader.ask("old_info", model="pilot") == {"pilot": {"layers": "3"}}
    latest = {
        "model": "pilot",
        "user_data": {"layers": "3"},
        "version_user_data": {"loss": "0.5"},
        "text": "second",
        "version": second,
    }
    assert reader.ask("old_retrieve", model="pilot") == latest
    assert reader.ask("old_retrieve", model="pilot", version_number=2) == latest
    older = latest | {"version_user_data": {}, "text": "first", "version": first}
    assert reader.ask("old_retrieve", model="pilot", version_number=1) == older
    assert reader.ask("old_retrieve", model="pilot", version_number=-2) == older
    assert reader.ask("old_retrieve", model="pilot", version_number=3) is None
