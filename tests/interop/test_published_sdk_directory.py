"""The published SDK's registrations and discovery against our directory.

Whoever asks by hand is `app/finder.py`, which does what it is told from here. That a whole application finds itself
over TLS too is in `test_published_sdk_connections.py`.
"""

from __future__ import annotations

import signal
import socket

import pytest

from tests.interop.scenes import CLIENT, Scene, actor, field, observations

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

#: What docs/directory.md promises for a server whose process is gone.
GONE_SECONDS = 11
#: What one `participants.py` registers: three classes of actors, an environment, a hook, a data log.
ENTRIES = 6
#: The SDK's own kinds, the names of discovery, and the API's.
KINDS = {
    "LIFE_CYCLE": ("lifecycle", "TRIAL_LIFE_CYCLE_SERVICE"),
    "CLIENT_ACTOR": ("actservice", "CLIENT_ACTOR_CONNECTION_SERVICE"),
    "ACTOR": ("actor", "ACTOR_SERVICE"),
    "ENVIRONMENT": ("environment", "ENVIRONMENT_SERVICE"),
    "HOOK": ("prehook", "PRE_HOOK_SERVICE"),
    "DATALOG": ("datalog", "DATALOG_SERVICE"),
    "DATASTORE": ("datastore", "DATASTORE_SERVICE"),
    "MODEL_REG": ("modelregistry", "MODEL_REGISTRY_SERVICE"),
}


def test_registering_and_asking_by_hand(scene: Scene) -> None:
    directory = scene.directory()
    cast = scene.participants()
    port = scene.port("cast")
    finder = scene.told("finder", f"--directory={directory.endpoint}")
    assert finder.ask("by_type", kind="ENVIRONMENT") == []
    # The participants' server answers for each of these.
    shared = {"site": "lab"}
    made: dict[str, tuple[int, str]] = {}
    for name in ("first", "second"):
        properties = shared | {"name": name}
        made[name] = tuple(finder.ask("register", kind="ENVIRONMENT", port=port, properties=properties))
    found = finder.ask("by_type", kind="ENVIRONMENT", properties=shared)
    assert found == [[cast, False], [cast, False]]
    newest_first = [entry.details.properties["name"] for entry in directory.entries("ENVIRONMENT_SERVICE")]
    assert newest_first == ["second", "first"]
    assert finder.ask("by_type", kind="ENVIRONMENT", properties={"name": "first"}) == [[cast, False]]
    assert finder.ask("by_type", kind="ENVIRONMENT", properties={"site": "elsewhere"}) == []
    assert finder.ask("by_type", kind="ACTOR") == []
    service, secret = made["first"]
    assert finder.ask("by_id", service=service) == [[cast, False]]
    assert finder.ask("resolve", url=f"cogment://discover/service?__id={service}") == cast
    assert finder.ask("by_id", service=1) == []

    # The SDK does not tell when it was refused.
    finder.ask("deregister", service=service, secret="wrong")
    assert len(directory.entries("ENVIRONMENT_SERVICE")) == 2
    finder.ask("deregister", service=service, secret=secret)
    assert [entry.service_id for entry in directory.entries("ENVIRONMENT_SERVICE")] == [made["second"][0]]

    # Who does not answer, or not as what it is registered, is not shown.
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        finder.ask("register", kind="DATALOG", port=holder.getsockname()[1], properties={})
        assert finder.ask("by_type", kind="DATALOG") == []
        holder.listen()
        # Anything may be behind TLS, or a service of any other kind: it has to take the connection.
        finder.ask("register", kind="DATALOG", port=holder.getsockname()[1], properties={}, ssl=True)
        address = f"grpc://127.0.0.1:{holder.getsockname()[1]}"
        assert finder.ask("by_type", kind="DATALOG") == [[address, True]]
    finder.ask("register", kind="DATASTORE", port=port, properties={})
    assert finder.ask("by_type", kind="DATASTORE") == []
    name, text = finder.refusal("register", kind="ENVIRONMENT", port=0, properties={})
    assert name == "CogmentError"
    assert "endpoint.port: expected 1 to 65535" in text
    finder.leave()
    scene.end(directory.server)


def test_our_servers_are_found(scene: Scene) -> None:
    directory = scene.directory()
    told = f"--directory_endpoint={directory.endpoint}"
    here = "--directory_registration_host=127.0.0.1"
    datastore = scene.datastore(told, here, "--directory_registration_properties=keeps=everything")
    registry = scene.model_registry(told, here)
    cast = scene.participants("cast", f"--directory={directory.endpoint}")
    orchestrator = scene.orchestrator(told, here)
    # Each actor class of each implementation is an entry.
    for kind, number in {"ACTOR": 3, "DATALOG": 2}.items():
        directory.until(KINDS[kind][1], number)
    expected = {
        "LIFE_CYCLE": orchestrator.lifecycle,
        "CLIENT_ACTOR": orchestrator.actors,
        "ACTOR": cast,
        "ENVIRONMENT": cast,
        "HOOK": cast,
        "DATASTORE": datastore.endpoint,
        "MODEL_REG": registry.endpoint,
    }
    finder = scene.told("finder", f"--directory={directory.endpoint}")
    for kind, endpoint in expected.items():
        path, service = KINDS[kind]
        directory.until(service, 3 if kind == "ACTOR" else 1)
        assert finder.ask("resolve", url=f"cogment://discover/{path}") == endpoint
        assert finder.ask("resolve", url="cogment://discover", kind=kind) == endpoint
    url = "cogment://discover/datalog?keeps=everything"
    assert finder.ask("resolve", url=url) == datastore.endpoint
    for properties, number in (
        ({"__implementation": "understudy"}, 1),
        ({"__actor_class": "player"}, 2),
        ({"__actor_class": "referee", "__implementation": "scripted"}, 1),
        ({"__registration_source": "PythonSDK-Implicit"}, 3),
        ({"__actor_class": "referee", "__implementation": "understudy"}, 0),
    ):
        assert len(finder.ask("by_type", kind="ACTOR", properties=properties)) == number, properties

    # Nobody is told where anybody is.
    remote = scene.remote(None, f"--directory={directory.endpoint}")
    reader = scene.told("reader", f"--directory={directory.endpoint}")
    models = scene.told("models", f"--directory={directory.endpoint}")
    actors = [actor("ann", "cogment://discover"), actor("bob", "", implementation="understudy"), actor("cleo", CLIENT)]
    world = field("cogment://discover", last_tick=2)
    remote.ask("start", trial="found", parameters={**world, "datalog_endpoint": url, "actors": actors})
    remote.ask("join", trial="found", actor_name="cleo")
    (trial,) = reader.ask("trials", ids=["found"], wait_for_trials=20)
    assert [given["name"] for given in trial["parameters"]["actors"]] == ["ann", "bob", "cleo"]
    samples = reader.ask("samples", trials=["found"])
    assert [sample["tick"] for sample in samples] == [0, 1, 2]
    assert scene.record("found.bob")["implementation"] == "understudy"
    assert models.ask("send", model="pilot", stored=False, text="found")["iteration"] == 1
    assert models.ask("old_retrieve", model="pilot")["text"] == "found"
    for program in (remote, reader, models, finder):
        program.leave()
    scene.end(orchestrator, datastore, registry)
    # Whoever leaves in order is gone at once.
    for kind in ("LIFE_CYCLE", "CLIENT_ACTOR", "DATASTORE", "MODEL_REG"):
        assert directory.entries(KINDS[kind][1]) == [], kind
    scene.end(directory.server)


def test_one_of_two_environment_servers_goes(scene: Scene) -> None:
    directory = scene.directory()
    told = f"--directory={directory.endpoint}"
    orchestrator = scene.orchestrator(f"--directory_endpoint={directory.endpoint}", "--directory_auto_register=false")
    for number, name in enumerate(("older", "newer", "newest"), 1):
        scene.participants(name, told)
        directory.until("DATALOG_SERVICE", number)
    processes = {process.name: process for process in scene.processes}
    remote = scene.remote(orchestrator)

    def played_by(trial: str) -> str:
        """Run a trial of which nothing is said where, and return who was the environment."""
        remote.ask("start", trial=trial, parameters={**field("", last_tick=1), "actors": [actor("ann", "")]})
        assert observations(scene.record(f"{trial}.ann"))[-1] == (1, "ENDING")
        said = f"the environment of {trial} is here"
        (name,) = (name for name in ("older", "newer", "newest") if said in processes[name].output)
        return name

    assert played_by("all") == "newest"
    # Interrupted, the SDK takes back what it has registered.
    assert directory.count() == 3 * ENTRIES
    processes["newest"].send(signal.SIGINT)
    scene.until("it is deregistered", lambda: directory.count() == 2 * ENTRIES)
    assert played_by("interrupted") == "newer"
    # Killed, it stays registered; it is not shown any more when it has been looked at.
    processes["newer"].send(signal.SIGKILL)
    for kind, number in (("ENVIRONMENT_SERVICE", 1), ("ACTOR_SERVICE", 3)):
        directory.until(kind, number, seconds=GONE_SECONDS + 4)
    assert directory.count() == 2 * ENTRIES
    assert played_by("killed") == "older"
    remote.leave()
    scene.end(orchestrator)
    scene.end(directory.server)
