"""`trio-cogment token`: what it writes, what it prints, and what it refuses."""

from __future__ import annotations

import json
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import Output, run_main
from trio_cogment.access import Keys, Quotas, Role


def make(secret: Path, *arguments: str) -> str:
    done = run_main("token", "make", *arguments, f"--auth_secret_file={secret}")
    assert done.code == 0, done.err
    return done.out.strip()


def shown(text: str, *arguments: str) -> dict[str, object]:
    done = run_main("token", "show", "-", "--json", *arguments, data=text.encode())
    assert done.code == 0, done.err
    found: dict[str, object] = json.loads(done.out)
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_secret_is_its_owners_and_is_not_replaced(secret: Path) -> None:
    assert mode(secret) == 0o600
    before = secret.read_text()
    assert len(Keys.parse(before)) == 1
    again = run_main("token", "init", f"--auth_secret_file={secret}")
    assert (again.code, again.err) == (
        1,
        f"trio-cogment: --auth_secret_file: {secret}: it exists already; --rotate puts a new key into it\n",
    )
    assert secret.read_text() == before


def test_a_rotation_keeps_the_old_tokens(secret: Path) -> None:
    old = make(secret, "alice", "--role=admin")
    assert run_main("token", "init", "--rotate", f"--auth_secret_file={secret}").code == 0
    assert mode(secret) == 0o600
    new = make(secret, "bob")
    keys = Keys.parse(secret.read_text())
    assert keys.verify(old).grant.name == "alice"
    assert keys.verify(new).grant.name == "bob"
    assert old.split(".")[1] != new.split(".")[1]
    for _ in range(14):
        assert run_main("token", "init", "--rotate", f"--auth_secret_file={secret}").code == 0
    full = run_main("token", "init", "--rotate", f"--auth_secret_file={secret}")
    assert "it has 16 keys; remove an old one first" in full.err


def test_a_secret_that_others_can_read_is_not_used(secret: Path) -> None:
    secret.chmod(0o640)
    done = run_main("token", "make", "alice", f"--auth_secret_file={secret}")
    assert done.code == 1
    assert done.err == (
        f"trio-cogment: --auth_secret_file: {secret}: others than its owner can read it; chmod 600 {secret}\n"
    )


def test_a_token_says_what_was_asked_for(secret: Path) -> None:
    text = make(
        secret,
        *("alice", "--role=participant", "--role=observer", "--expires=2h", "--trial=t1", "--trial=lab-*"),
        *("--class=pilot", "--actor=ann", "--max_trials=2", "--max_stored_bytes=1000", "--max_models=0"),
    )
    token = Keys.parse(secret.read_text()).verify(text)
    assert token.grant.roles == {Role.PARTICIPANT, Role.OBSERVER}
    assert (token.grant.trials, token.grant.classes, token.grant.actors) == (("t1", "lab-*"), ("pilot",), ("ann",))
    assert token.grant.quotas == Quotas(trials=2, stored_bytes=1000, models=0)
    found = shown(text, f"--auth_secret_file={secret}")
    assert found["id"] == token.token_id
    assert found["state"] == "valid"
    assert found["roles"] == ["observer", "participant"]
    assert found["quotas"] == {"trials": 2, "bytes": 1000, "models": 0}


def test_a_token_is_shown_as_text(secret: Path) -> None:
    text = make(secret, "alice", "--role=operator", "--expires=never")
    done = run_main("token", "show", text)
    lines = done.out.splitlines()
    assert lines[1:] == [
        *("name: alice", "roles: operator", "expires: never"),
        "state: not checked (--auth_secret_file)",
    ]
    assert lines[0].startswith("id: ")


@pytest.mark.parametrize("last_line", ["0a1b2c3d", "0a1b2c3d  # whose, is not known"])
def test_a_revocation_has_a_line_of_its_own(secret: Path, tmp_path: Path, last_line: str) -> None:
    revoked = tmp_path / "revoked"
    revoked.write_text(last_line)  # by an editor that does not end it
    alice = make(secret, "alice")
    here = f"--auth_revocation_file={revoked}"
    assert run_main("token", "revoke", str(shown(alice)["id"]), here).code == 0
    assert run_main("token", "revoke", "--name=bob", here).code == 0
    assert revoked.read_text() == f"{last_line}\n{shown(alice)['id']}\nname=bob\n"
    assert shown(alice, here, f"--auth_secret_file={secret}")["state"] == "the token has been revoked"


def test_what_counts_is_told_from_what_does_not(secret: Path, tmp_path: Path) -> None:
    revoked = tmp_path / "revoked"
    here = (f"--auth_secret_file={secret}", f"--auth_revocation_file={revoked}")
    alice, bob, carol = (make(secret, name) for name in ("alice", "bob", "carol"))
    assert shown(alice, *here)["state"] == "valid"
    assert run_main("token", "revoke", alice, f"--auth_revocation_file={revoked}").code == 0
    assert mode(revoked) == 0o600
    assert run_main("token", "revoke", "--name=bob", f"--auth_revocation_file={revoked}").code == 0
    carols_id = str(shown(carol)["id"])
    assert run_main("token", "revoke", carols_id, f"--auth_revocation_file={revoked}").code == 0
    for text in (alice, bob, carol, make(secret, "bob")):
        assert shown(text, *here)["state"] == "the token has been revoked"
    assert shown(make(secret, "alice"), *here)["state"] == "valid"
    other = tmp_path / "other"
    run_main("token", "init", f"--auth_secret_file={other}")
    assert shown(alice, f"--auth_secret_file={other}")["state"] == "the token is not valid here"


def test_a_token_goes_into_a_file_of_its_own(secret: Path, tmp_path: Path) -> None:
    path = tmp_path / "alice.token"
    said = make(secret, "alice", "--role=operator", f"--file={path}")
    assert mode(path) == 0o600
    found = shown(path.read_text())
    assert said == f"{path}: alice, operator, id {found['id']}, until {found['expires']}"
    endless = tmp_path / "endless.token"
    assert make(secret, "eve", "--expires=never", f"--file={endless}").endswith(", does not expire")
    assert make(secret, "eve", "--json", f"--file={tmp_path / 'json.token'}").startswith("{")
    assert shown(path.read_text(), f"--auth_secret_file={secret}")["name"] == "alice"
    again = run_main("token", "make", "bob", f"--file={path}", f"--auth_secret_file={secret}")
    assert again.err == f"trio-cogment: --file: {path}: it exists already\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("make", "alice", "--role=god"), "role: 'god': expected one of admin, operator, participant, seat, observer"),
        (("make", "a#b"), "name: expected no '#'"),
        (("make", ""), "name: expected 1 to 128 printable characters, got ''"),
        (("make", "alice", "--expires=soon"), "--expires: expected a duration such as 90d, 12h or 30m, or never"),
        (("make", "alice", "--expires=0d"), "--expires: expected a duration"),
        (("make", "alice", "--expires=nand"), "--expires: expected a duration"),
        (("make", "alice", "--max_trials=-1"), "--max_trials: -1 is not in the range"),
        (("show", "abc"), "TOKEN: expected a token of the form tc1.KEY.CLAIMS.SIGNATURE"),
        (("revoke",), "--auth_revocation_file: it is needed"),
        (("show", "abc", "--token_file=x"), "expected a token, or --token_file"),
        (("show", "--token_file=gone"), "gone: No such file or directory"),
        (("revoke", "--auth_revocation_file=x"), "expected a token, its id, --token_file or --name"),
        (("revoke", "a", "--name=b", "--auth_revocation_file=x"), "expected a token, its id, --token_file or --name"),
        (("revoke", "--name=", "--auth_revocation_file=x"), "--name: expected the name of a token's holder, got ''"),
        (("revoke", "--name=bob#2", "--auth_revocation_file=x"), "expected the name of a token's holder, got 'bob#2'"),
        (
            ("revoke", "bob", "--auth_revocation_file=x"),
            "'bob' is not a token, a token's id or a file with a token; --name=bob revokes all tokens of bob",
        ),
        (("revoke", "a.b", "--auth_revocation_file=x"), "TOKEN: expected a token of the form"),
        (("revoke", "--token_file=gone", "--auth_revocation_file=x"), "gone: No such file or directory"),
    ],
)
def test_what_makes_no_sense_is_refused(secret: Path, arguments: tuple[str, ...], expected: str) -> None:
    done = run_main("token", *arguments, variables={"COGMENT_AUTH_SECRET_FILE": str(secret)})
    assert done.code == 1
    assert expected in done.err
    assert not os.path.exists("x")


def test_without_a_secret_nothing_is_made(tmp_path: Path) -> None:
    missing: Output = run_main("token", "make", "alice")
    assert missing.code == 1
    assert missing.err == ("trio-cogment: --auth_secret_file: it is needed; `trio-cogment token init` makes one\n")
    gone = run_main("token", "make", "alice", f"--auth_secret_file={tmp_path / 'x'}")
    assert gone.err == f"trio-cogment: --auth_secret_file: {tmp_path / 'x'}: No such file or directory\n"
    (tmp_path / "y").write_bytes(b"\xff")
    (tmp_path / "y").chmod(0o600)
    assert "expected text" in run_main("token", "make", "alice", f"--auth_secret_file={tmp_path / 'y'}").err


@pytest.mark.parametrize("flag", ["", "--token_file="])
def test_a_token_is_shown_and_revoked_by_its_file(secret: Path, tmp_path: Path, flag: str) -> None:
    path, revoked = tmp_path / "alice.token", tmp_path / "revoked"
    make(secret, "alice", f"--file={path}")
    token_id = shown(path.read_text())["id"]
    done = run_main("token", "show", f"{flag}{path}")
    assert done.out.splitlines()[0] == f"id: {token_id}"
    first = run_main("token", "revoke", f"{flag}{path}", f"--auth_revocation_file={revoked}")
    assert first.out.startswith(f"{revoked} (new): {token_id}  # alice; ")
    again = run_main("token", "revoke", f"{flag}{path}", f"--auth_revocation_file={revoked}")
    assert again.out.startswith(f"{revoked}: {token_id}  # alice; ")
    assert revoked.read_text() == f"{token_id}  # alice\n" * 2


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Files may have five bytes: a write takes what fits, and the next one fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_no_secret(tmp_path: Path, full_disk: None) -> None:
    secret = tmp_path / "secret"
    done = run_main("token", "init", f"--auth_secret_file={secret}")
    assert (done.code, done.err) == (1, f"trio-cogment: --auth_secret_file: {secret}: File too large\n")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_changes_no_file(secret: Path, request: pytest.FixtureRequest) -> None:
    revoked = secret.with_name("revoked")
    assert run_main("token", "revoke", "0" * 20, f"--auth_revocation_file={revoked}").code == 0
    before = {path: path.read_bytes() for path in secret.parent.iterdir()}
    request.getfixturevalue("full_disk")
    for arguments in (
        ("init", "--rotate", f"--auth_secret_file={secret}"),
        ("make", "alice", f"--file={secret.with_name('alice')}", f"--auth_secret_file={secret}"),
        ("revoke", "1" * 20, f"--auth_revocation_file={revoked}"),
    ):
        done = run_main("token", *arguments)
        assert done.code == 1
        assert "File too large" in done.err
        assert {path: path.read_bytes() for path in secret.parent.iterdir()} == before


def test_a_secret_without_content_is_told_from_one_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    done = run_main("token", "init", f"--auth_secret_file={tmp_path / 'secret'}")
    assert done.err.endswith("secret: it is empty, as after a full disk; remove it first\n")
