"""Callers: accounts, their property, and the actors they play."""

from __future__ import annotations

import pytest

from tests.access.keys import grant
from trio_cogment.access import EVERYTHING, NOTHING, Grant, Identity, Role, address_of, anonymous, roles_of
from trio_cogment.base.errors import InvalidArgumentError, PermissionDeniedError

TERMINATE = "/cogmentAPI.TrialLifecycleSP/TerminateTrial"
INFO = "/cogmentAPI.TrialLifecycleSP/GetTrialInfo"


def identity(held: Grant, account: str = "token:alice") -> Identity:
    return Identity(account=account, local=False, grant=held)


@pytest.mark.parametrize(
    ("peer", "account", "local"),
    [
        ("ipv4:127.0.0.1:53412", "ipv4:127.0.0.1", True),
        ("ipv4:127.8.0.1:1", "ipv4:127.8.0.1", True),
        ("ipv4:10.0.0.7:53412", "ipv4:10.0.0.7", False),
        ("ipv6:[::1]:53412", "ipv6:::1", True),
        ("ipv6:[::ffff:10.0.0.7]:53412", "ipv4:10.0.0.7", False),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:1", "ipv6:2001:db8:1:2::/64", False),
        ("ipv6:[2001:db8:1:2:ffff::9]:2", "ipv6:2001:db8:1:2::/64", False),
        ("ipv6:[fe80::1%eth0]:2", "ipv6:fe80::1", False),
        ("unix:", "unix", True),
        ("unix:/run/x", "unix", True),
        ("stream", "stream", False),
        ("unknown", "unknown", False),
        ("ipv4:nonsense", "ipv4", False),
    ],
)
def test_an_address_is_an_account(peer: str, account: str, local: bool) -> None:
    assert address_of(peer) == (account, local)
    assert anonymous(peer) == Identity(account=account, local=local, grant=EVERYTHING)
    assert (anonymous(peer).token_id, anonymous(peer).sources, anonymous(peer).derives) == ("", (), ())


def test_with_open_access_everybody_reaches_everything() -> None:
    somebody = anonymous("ipv4:10.0.0.7:1")
    assert somebody.admin
    assert somebody.reaches(TERMINATE, "token:bob")
    assert somebody.reaches("/mine.Service/Method", "")
    assert somebody.plays("t", "token:bob", "class", "actor")


def test_an_operator_reaches_its_own() -> None:
    alice = identity(grant(Role.OPERATOR))
    assert alice.reaches(TERMINATE, "token:alice")
    for owner in ("token:bob", "", "certificate:alice"):
        assert not alice.reaches(TERMINATE, owner)
        with pytest.raises(PermissionDeniedError, match=r"^trial 't': it belongs to somebody else$"):
            alice.check_reaches(TERMINATE, owner, "trial 't'")
    # Nor what nobody owns, when its own account has no name.
    assert not identity(grant(Role.OPERATOR), account="").reaches(TERMINATE, "")


def test_an_observer_reads_everything() -> None:
    eve = identity(grant(Role.OBSERVER))
    assert eve.reaches(INFO, "token:bob")
    assert not eve.reaches(TERMINATE, "token:alice")


def test_nobody_without_rights_reaches_anything() -> None:
    nobody = anonymous("ipv4:10.0.0.7:1", NOTHING)
    assert not nobody.reaches(INFO, "ipv4:10.0.0.7")
    assert not nobody.plays("t", "ipv4:10.0.0.7", "class", "actor")


def test_a_participant_plays_what_its_token_names() -> None:
    held = Grant(name="p", roles=roles_of(["participant"]), trials=("t1", "lab-*"), classes=("pilot",), actors=("a*",))
    pilot = identity(held)
    assert pilot.plays("t1", "x", "pilot", "ann")
    assert pilot.plays("lab-7", "x", "pilot", "a")
    assert not pilot.plays("t2", "x", "pilot", "ann")
    assert not pilot.plays("t1", "x", "captain", "ann")
    assert not pilot.plays("t1", "x", "pilot", "bob")
    assert not pilot.plays("t10", "x", "pilot", "ann")
    anyone = identity(grant(Role.PARTICIPANT))
    assert anyone.plays("t9", "x", "captain", "bob")


def test_an_operator_plays_in_its_own_trials() -> None:
    alice = identity(grant(Role.OPERATOR))
    assert alice.plays("t", "token:alice", "class", "actor")
    assert not alice.plays("t", "token:bob", "class", "actor")
    assert not identity(grant(Role.OBSERVER)).plays("t", "token:alice", "class", "actor")


def test_what_nobody_owns_is_not_the_property_of_an_account_without_a_name() -> None:
    nameless = identity(grant(Role.OPERATOR), account="")
    assert not nameless.plays("t", "", "class", "actor")
    assert not nameless.reaches(TERMINATE, "")


def test_roles_have_names() -> None:
    """Tokens have them, files and commands."""
    assert {role.value for role in Role} == {
        *("admin", "operator", "participant", "seat", "observer", "directory", "orchestrator", "worker"),
    }
    assert roles_of(["admin", "observer"]) == {Role.ADMIN, Role.OBSERVER}
    with pytest.raises(InvalidArgumentError, match="'god': expected one of admin, operator"):
        roles_of(["god"])


@pytest.mark.parametrize("name", ["", "a" * 514, "a\nb", "\x1b[31m"])
def test_names_are_checked(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="name: expected 1 to 128 printable characters"):
        Grant(name=name)
    with pytest.raises(InvalidArgumentError, match="trials: expected 1 to 513"):
        Grant(name="a", trials=(name,))
    with pytest.raises(InvalidArgumentError, match="actors: expected 64 at most, got 65"):
        Grant(name="a", actors=("a",) * 65)


@pytest.mark.parametrize("name", ["a#b", " a", "a ", "a" * 129])
def test_a_name_can_stand_in_the_revocation_file(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^name: expected"):
        Grant(name=name)


def test_a_trial_that_somebody_has_named_like_a_pattern_is_no_pattern() -> None:
    held = Grant(name="server", roles=roles_of(["orchestrator"]), trials=("=lab-*",))
    assert held.names_trial("lab-*")
    assert not held.names_trial("lab-1")
    assert not held.names_trial("=lab-*")


def test_a_worker_works_for_the_runs_that_its_token_names() -> None:
    worker = identity(grant(Role.WORKER, trials=("=a",)))
    assert worker.works_for("a")
    assert not worker.works_for("b")
    assert identity(grant(Role.WORKER)).works_for("b")
    assert identity(grant(Role.ADMIN)).works_for("b")
    assert not identity(grant(Role.OPERATOR, trials=("=a",))).works_for("a")


def test_an_owner_is_an_account() -> None:
    assert Grant(name="n", owner="token:" + "x" * 128).owner
    for bad in ("x" * 257, "a\nb"):
        with pytest.raises(InvalidArgumentError, match=r"^owner: expected 1 to 256 printable characters"):
            Grant(name="n", owner=bad)
