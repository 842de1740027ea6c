"""The published SDK and our orchestrator over TLS, and who gets in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trustme

from tests.interop.scenes import CLIENT, Scene, action_sets, active, actor, field, observations

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


def tls_flags(folder: Path) -> list[str]:
    files = {"private_key": "key.pem", "root_cert": "roots.pem", "trust_chain": "chain.pem"}
    return [f"--{flag}={folder / name}" for flag, name in files.items()]


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
