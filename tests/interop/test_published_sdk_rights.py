"""The published SDK against a server that asks for tokens: every cell of role x method that it can send metadata for.

Its client actors and its watchers send none, so they need a certificate. What it calls is in `app/rights.py`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import trustme

from tests.access.keys import FOREIGN, grant
from tests.interop.processes import Server
from tests.interop.scenes import Scene, tls_flags
from trio_cogment.access import RIGHTS, Keys, Role, Token

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

#: Of which roles there are tokens that name no trial.
ROLES = [role for role in Role if role is not Role.SEAT]
OF_CLIENT_ACTORS = "ClientActorSP/RunTrial"
#: For which the SDK sends no metadata.
WITHOUT_METADATA = (OF_CLIENT_ACTORS, "TrialLifecycleSP/WatchTrials")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("ab" * 32)
    path.chmod(0o600)
    return path


def signed(secret: Path, role: Role, *, token_id: str = "", expires_at: int = 0) -> str:
    token = Token(token_id=token_id or role.value, grant=grant(role, name=role.value), expires_at=expires_at)
    return Keys.parse(secret.read_text()).sign(token)


def outcomes(scene: Scene, server: Server, tokens: dict[str, str], *options: str) -> dict[str, dict[str, str]]:
    """Return how each call of the SDK ended, by the name of the token."""
    done = subprocess.run(
        [scene._python, str(scene._project / "rights.py"), server.lifecycle, *options],
        cwd=scene._project,
        input=json.dumps(tokens),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def allowed(role: Role, method: str) -> bool:
    service, _, name = method.partition("/")
    return role in RIGHTS[f"cogmentAPI.{service}"][name]


def flags(secret: Path) -> list[str]:
    revoked = secret.with_name("revoked")
    revoked.write_text("gone\nname=mallory\n")
    return ["--auth=token", f"--auth_secret_file={secret}", f"--auth_revocation_file={revoked}"]


def test_every_cell(scene: Scene, secret: Path) -> None:
    server = scene.everything(*flags(secret)).server
    found = outcomes(scene, server, {role.value: signed(secret, role) for role in ROLES})
    for role in ROLES:
        cells = found[role.value]
        assert len(cells) > 15
        for method in WITHOUT_METADATA:
            assert cells.pop(method) == "UNAUTHENTICATED"
        expected = {method: "REACHED" if allowed(role, method) else "PERMISSION_DENIED" for method in cells}
        assert cells == expected, role
    scene.end(server)


def test_no_bad_token_gets_in(scene: Scene, secret: Path) -> None:
    server = scene.everything(*flags(secret)).server
    bad = {
        "none": "",
        "forged": signed(secret, Role.ADMIN)[:-2],
        "foreign": FOREIGN.sign(Token(token_id="f", grant=grant(Role.ADMIN), expires_at=0)),
        "expired": signed(secret, Role.ADMIN, expires_at=1),
        "revoked": signed(secret, Role.ADMIN, token_id="gone"),
    }
    for name, cells in outcomes(scene, server, bad).items():
        assert cells == dict.fromkeys(cells, "UNAUTHENTICATED"), name
    scene.end(server)


def test_certificates_count_like_tokens(scene: Scene, secret: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    folders = {}
    for name in ("server", "observer", "player", "nobody"):
        folder = folders[name] = tmp_path / name
        folder.mkdir()
        certificate = authority.issue_cert("127.0.0.1", "localhost", f"{name}.example")
        certificate.private_key_pem.write_to_path(folder / "key.pem")
        for blob in certificate.cert_chain_pems:
            blob.write_to_path(folder / "chain.pem", append=True)
        authority.cert_pem.write_to_path(folder / "roots.pem")
    roles = tmp_path / "roles"
    roles.write_text("observer.example observer\nplayer.example participant\n")
    server = scene.everything(*flags(secret), f"--auth_certificates_file={roles}", *tls_flags(folders["server"])).server
    for name, role in (("observer", Role.OBSERVER), ("player", Role.PARTICIPANT)):
        cells = outcomes(scene, server, {"none": ""}, f"--tls={folders[name]}")["none"]
        # By a certificate client actors get in, too: that there is no such trial is another answer.
        cells.pop(OF_CLIENT_ACTORS)
        expected = {method: "REACHED" if allowed(role, method) else "PERMISSION_DENIED" for method in cells}
        assert cells == expected, name
    found = outcomes(scene, server, {"none": "", "token": signed(secret, Role.ADMIN)}, f"--tls={folders['nobody']}")
    assert set(found["none"].values()) == {"UNAUTHENTICATED"}
    for method in WITHOUT_METADATA:
        assert found["token"].pop(method) == "UNAUTHENTICATED"
    assert set(found["token"].values()) == {"REACHED"}
    scene.end(server)
