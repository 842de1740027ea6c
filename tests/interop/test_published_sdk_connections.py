"""The published SDK and our orchestrator over TLS, and finding each other in a directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trustme

from tests.interop.scenes import CLIENT, Scene, action_sets, active, actor, field, observations, tls_flags
from trio_cogment.api.directory_pb2 import ServiceEndpoint

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


# --- TLS ---


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a key, its certificate for this machine, and the authority that everybody trusts."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(folder / "chain.pem", append=True)
    authority.cert_pem.write_to_path(folder / "roots.pem")
    return folder


def test_mutual_tls(scene: Scene, certificates: Path) -> None:
    cast = scene.participants("cast", f"--tls={certificates}")
    orchestrator = scene.orchestrator(f"--pre_trial_hooks={cast}", *tls_flags(certificates))
    remote = scene.remote(orchestrator, f"--tls={certificates}")
    remote.ask("watch", name="all", states=[])
    # Hook, data log, environment, service actor and client actor: every kind of stream there is.
    made = {
        **field(cast, last_tick=2),
        "datalog_endpoint": cast,
        "actors": [actor("ann", cast, bonus=10), actor("cleo", CLIENT, bonus=20)],
    }
    config = {"script": json.dumps({"cast": made})}
    assert remote.ask("start", trial="secret", config=config) == "secret"
    remote.ask("join", trial="secret", actor_name="cleo")
    remote.ask("watched", name="all", until=[["secret", "ENDED"]])
    assert remote.ask("info", trials=["secret"])[0]["tick"] == 2
    assert action_sets(scene.record("secret.field")) == [(0, "ACTIVE", active(10, 20)), (1, "ACTIVE", active(11, 21))]
    for name in ("ann", "cleo"):
        assert observations(scene.record(f"secret.{name}"))[-1] == (2, "ENDING")
    assert [sample["tick"] for sample in scene.record("secret.datalog")["samples"]] == [0, 1, 2]
    # Who has no certificate gets in neither by TLS nor in the clear.
    for number, options in enumerate([[f"--tls={certificates}", "--anonymous"], []]):
        stranger = scene.remote(orchestrator, *options, name=f"stranger-{number}")
        assert stranger.refusal("info", trials=[])[0] == "UNAVAILABLE"
        stranger.leave()
    # Nobody but those whom the same authority knows: here somebody without TLS.
    plain = scene.participants("plain")
    trial = {**field(plain), "actors": [actor("ann", cast)]}
    remote.ask("start", trial="plain", parameters=trial)
    remote.ask("watched", name="all", until=[["plain", "ENDED"]])
    assert not (scene.folder / "plain.field.json").exists()
    remote.leave()
    scene.end(orchestrator)


def test_an_authority_of_ones_own_and_clients_without_certificates(scene: Scene, certificates: Path) -> None:
    cast = scene.participants("cast", f"--tls={certificates}")
    key, chain, roots = (certificates / f"{name}.pem" for name in ("key", "chain", "roots"))
    orchestrator = scene.orchestrator(
        f"--private_key={key}", f"--trust_chain={chain}", f"--outgoing_root_cert={roots}", f"--pre_trial_hooks={cast}"
    )
    remote = scene.remote(orchestrator, f"--tls={certificates}", "--anonymous")
    remote.ask("watch", name="all", states=[])
    actors = [actor("ann", cast, bonus=10), actor("cleo", CLIENT, bonus=20)]
    config = {"script": json.dumps({"cast": {**field(cast, last_tick=2), "datalog_endpoint": cast, "actors": actors}})}
    assert remote.ask("start", trial="trusting", config=config) == "trusting"
    remote.ask("join", trial="trusting", actor_name="cleo")
    remote.ask("watched", name="all", until=[["trusting", "ENDED"]])
    assert remote.ask("info", trials=["trusting"])[0]["tick"] == 2
    assert [sample["tick"] for sample in scene.record("trusting.datalog")["samples"]] == [0, 1, 2]
    # What is missing is said where it can be: in the server's log.
    stranger = scene.remote(orchestrator, name="stranger")
    assert stranger.refusal("info", trials=[])[0] == "UNAVAILABLE"
    stranger.leave()
    remote.leave()
    scene.end(orchestrator)


# --- discovery ---


@pytest.mark.parametrize("encrypted", [False, True], ids=["clear", "tls"])
def test_everybody_finds_the_others_in_a_directory(scene: Scene, certificates: Path, encrypted: bool) -> None:
    tls = [f"--tls={certificates}"] if encrypted else []
    directory = scene.directory(certificates if encrypted else None)
    ports: dict[str, int] = {}
    for number, name in enumerate(("older", "newer"), 1):
        scene.participants(name, f"--directory={directory.endpoint}", *tls)
        ports[name] = scene.port(name)
        # The data log is what the SDK registers last.
        directory.until("DATALOG_SERVICE", number)
    orchestrator = scene.orchestrator(
        f"--directory_endpoint={directory.endpoint}",
        "--directory_registration_host=127.0.0.1",
        "--directory_registration_properties=site=lab,spare",
        "--pre_trial_hooks=cogment://discover/prehook",
        *tls_flags(certificates if encrypted else None),
    )
    for service, url in (
        ("TRIAL_LIFE_CYCLE_SERVICE", orchestrator.lifecycle),
        ("CLIENT_ACTOR_CONNECTION_SERVICE", orchestrator.actors),
    ):
        (entry,) = directory.until(service, 1)
        assert entry.endpoint.host == "127.0.0.1"
        assert entry.endpoint.port == int(url.rpartition(":")[2])
        assert entry.endpoint.protocol == (ServiceEndpoint.GRPC_SSL if encrypted else ServiceEndpoint.GRPC)
        properties = entry.details.properties
        assert properties.items() >= {"site": "lab", "spare": ""}.items()
        assert properties["__version"]
        assert properties["__registration_source"] == "Self-Command_Line"

    # The controller knows the directory and nothing else; so do the parameters.
    remote = scene.remote(None, f"--directory={directory.endpoint}", *tls)
    referees = directory.entries("ACTOR_SERVICE", __actor_class="referee")
    (older,) = (entry for entry in referees if entry.endpoint.port == ports["older"])
    actors = [
        actor("implied", ""),
        actor("context", "cogment://discover", actor_class="referee"),
        actor("explicit", "cogment://discover/actor?__implementation=scripted&__actor_class=player"),
        actor("by-id", f"cogment://discover/service?__id={older.service_id}", actor_class="referee"),
        actor("cleo", CLIENT),
    ]
    made = {
        **field("cogment://discover/environment?ground=older", last_tick=2),
        "datalog_endpoint": "cogment://discover",
        "actors": actors,
    }
    config = {"script": json.dumps({"newer": made})}
    assert remote.ask("start", trial="found", config=config) == "found"
    remote.ask("join", trial="found", actor_name="cleo")
    told_names = [name for name, _ in scene.record("found.field")["actors"]]
    assert told_names == ["implied", "context", "explicit", "by-id", "cleo"]
    for name in told_names:
        assert observations(scene.record(f"found.{name}")) == [(0, "ACTIVE"), (1, "ACTIVE"), (2, "ENDING")]
    assert [sample["tick"] for sample in scene.record("found.datalog")["samples"]] == [0, 1, 2]
    assert (scene.folder / "found.hook-newer.json").exists()

    # Who is not there is not found: the start fails, and nothing is left.
    lost = {**field("cogment://discover/environment?ground=nowhere"), "actors": [actor("ann", "")]}
    code, text = remote.refusal("start", trial="lost", parameters=lost)
    assert code == "FAILED_PRECONDITION"
    assert "ground=nowhere" in text
    assert remote.ask("info", trials=["lost"]) == []
    remote.leave()
    scene.end(orchestrator)
    assert directory.entries("TRIAL_LIFE_CYCLE_SERVICE") == []
    assert directory.entries("CLIENT_ACTOR_CONNECTION_SERVICE") == []
    scene.end(directory.server)


@pytest.mark.parametrize("encrypted", [False, True], ids=["clear", "tls"])
def test_everybody_finds_everything_in_one_server(scene: Scene, certificates: Path, encrypted: bool) -> None:
    """`trio-cogment serve`: nobody knows more than its one endpoint."""
    directory = scene.everything(
        "--pre_trial_hooks=cogment://discover/prehook", tls=certificates if encrypted else None
    )
    told = [f"--directory={directory.endpoint}", *([f"--tls={certificates}"] if encrypted else [])]
    cast = scene.participants("cast", *told)
    directory.until("DATALOG_SERVICE", 2)
    finder = scene.told("finder", *told)
    for kind, path, endpoint in (
        ("LIFE_CYCLE", "lifecycle", directory.endpoint),
        ("CLIENT_ACTOR", "actservice", directory.endpoint),
        ("DATASTORE", "datastore", directory.endpoint),
        ("MODEL_REG", "modelregistry", directory.endpoint),
        ("ENVIRONMENT", "environment", cast),
        ("ACTOR", "actor", cast),
        ("HOOK", "prehook", cast),
        ("DATALOG", "datalog?__registration_source=PythonSDK-Implicit", cast),
        ("DATALOG", "datalog?__registration_source=Self-Implicit", directory.endpoint),
    ):
        assert finder.ask("resolve", url=f"cogment://discover/{path}") == endpoint, path
        if kind != "DATALOG":
            assert finder.ask("resolve", url="cogment://discover", kind=kind) == endpoint, kind

    remote = scene.remote(None, *told)
    actors = [
        actor("implied", "", implementation="understudy"),
        actor("context", "cogment://discover", actor_class="referee"),
        actor("explicit", "cogment://discover/actor?__implementation=scripted&__actor_class=player"),
        actor("cleo", CLIENT),
    ]
    logs = {
        "stored": "cogment://discover",
        "logged": "cogment://discover/datalog?__registration_source=PythonSDK-Implicit",
    }
    for trial, log in logs.items():
        world = field("cogment://discover/environment?ground=cast" if trial == "stored" else "", last_tick=2)
        config = {"script": json.dumps({"cast": {**world, "datalog_endpoint": log, "actors": actors}})}
        assert remote.ask("start", trial=trial, config=config) == trial
        remote.ask("join", trial=trial, actor_name="cleo")
        for name in ("implied", "context", "explicit", "cleo"):
            assert observations(scene.record(f"{trial}.{name}")) == [(0, "ACTIVE"), (1, "ACTIVE"), (2, "ENDING")]
        assert (scene.folder / f"{trial}.hook-cast.json").exists()
    assert [sample["tick"] for sample in scene.record("logged.datalog")["samples"]] == [0, 1, 2]
    assert not (scene.folder / "stored.datalog.json").exists()
    reader = scene.told("reader", *told)
    reader.ask("trials", ids=["stored"], wait_for_trials=20)
    assert [sample["tick"] for sample in reader.ask("samples", trials=["stored"])] == [0, 1, 2]
    models = scene.told("models", *told)
    assert models.ask("send", model="pilot", stored=True, text="found")["iteration"] == 1
    assert models.ask("old_retrieve", model="pilot")["text"] == "found"
    for program in (finder, remote, reader, models):
        program.leave()
    scene.end(directory.server)
