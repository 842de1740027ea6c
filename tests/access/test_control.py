"""The gate: who is let in, and until when."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.access.keys import FOREIGN, KEYS, NOW, Clock, control, grant, token_text
from trio_cogment.access import (
    NEVER,
    AccessControl,
    Grant,
    Identity,
    Keys,
    Revoked,
    Role,
    Rules,
    Visitor,
    authorization,
    bearer_token,
    parse_certificates,
    unverified,
)
from trio_cogment.base.errors import InvalidArgumentError, PermissionDeniedError, UnauthenticatedError

PEER = "ipv4:10.0.0.7:1"
START = "/cogmentAPI.TrialLifecycleSP/StartTrial"
INFO = "/cogmentAPI.TrialLifecycleSP/GetTrialInfo"
CHECK = "/grpc.health.v1.Health/Check"


def admitted(visitor: Visitor, text: str, path: str = START) -> Identity:
    return visitor.admit(path, authorization(text))


def test_a_token_says_who_it_is() -> None:
    found = admitted(control().visitor(PEER), token_text(grant(Role.OPERATOR)))
    assert found.account == "token:alice"
    assert found.grant == grant(Role.OPERATOR)
    assert found.token_id == "t1"
    assert not found.local
    assert admitted(control().visitor("unix:"), token_text(grant(Role.OPERATOR))).local


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Basic YWxpY2U6eA=="),),
        (("authorization-bin", b"Bearer x"),),
        (("x-token", token_text(grant(Role.ADMIN))),),
    ],
)
def test_without_a_token_nothing_but_health_is_answered(metadata: tuple[tuple[str, str | bytes], ...]) -> None:
    visitor = control().visitor(PEER)
    for path in (START, INFO, "/mine.Service/Method", "/grpc.health.v1.Health/List"):
        with pytest.raises(UnauthenticatedError, match=r"^expected a token, in the metadata authorization"):
            visitor.admit(path, metadata)
    assert visitor.admit(CHECK, metadata).account == "ipv4:10.0.0.7"


def test_a_bad_token_is_worse_than_none() -> None:
    visitor = control().visitor(PEER)
    for bad in ("x", token_text(grant(Role.ADMIN), keys=FOREIGN), "a" * 9000):
        for path in (START, CHECK):
            with pytest.raises(UnauthenticatedError, match=r"^the token is not valid here$"):
                visitor.admit(path, [("authorization", f"Bearer {bad}")])


def test_the_scheme_is_read_as_http_has_it_and_other_schemes_are_passed_over() -> None:
    text = token_text(grant(Role.OPERATOR))
    visitor = control().visitor(PEER)
    for metadata in (
        [("authorization", f"bearer {text}")],
        [("authorization", "Basic YWxpY2U6eA=="), ("authorization", f"Bearer {text}")],
    ):
        assert visitor.admit(START, metadata).account == "token:alice"


def test_a_token_is_text_in_the_field_for_it_alone() -> None:
    fields: list[tuple[str, str | bytes]] = [("x-note", "Bearer other"), ("authorization", b"Bearer bytes")]
    assert bearer_token(fields) is None
    assert bearer_token([*fields, ("authorization", "BEARER  mine ")]) == "mine"


def test_roles_decide() -> None:
    visitor = control().visitor(PEER)
    observer = token_text(grant(Role.OBSERVER))
    assert admitted(visitor, observer, INFO).grant.roles == {Role.OBSERVER}
    with pytest.raises(PermissionDeniedError, match=r"StartTrial: not allowed for the caller's roles \(observer\)$"):
        admitted(visitor, observer, START)
    several = token_text(grant(Role.WORKER, Role.OBSERVER, Role.DIRECTORY, Role.ORCHESTRATOR))
    with pytest.raises(PermissionDeniedError, match=r"\(directory, observer, orchestrator, worker\)$"):
        admitted(visitor, several, START)
    with pytest.raises(PermissionDeniedError, match=r"\(none\)$"):
        admitted(visitor, token_text(grant()), START)
    assert admitted(visitor, token_text(grant(Role.ADMIN)), "/mine.Service/Method").admin


def test_a_token_that_was_good_expires() -> None:
    clock = Clock()
    access = control(clock=clock)
    visitor = access.visitor(PEER)
    text = token_text(grant(Role.OPERATOR), expires_at=NOW + 10)
    found = admitted(visitor, text)
    clock.seconds = NOW + 9.9
    assert admitted(visitor, text) is found
    assert access.valid(found)
    clock.seconds = NOW + 10
    with pytest.raises(UnauthenticatedError, match=r"^the token has expired$"):
        admitted(visitor, text)
    with pytest.raises(UnauthenticatedError, match=r"^the token has expired$"):
        admitted(access.visitor(PEER), text)
    assert not access.valid(found)


def test_a_token_without_an_end_does_not_expire() -> None:
    clock = Clock()
    access = control(clock=clock)
    clock.seconds = NOW * 100
    assert access.valid(admitted(access.visitor(PEER), token_text(grant(Role.OPERATOR), expires_at=NEVER)))


@pytest.mark.parametrize("revoked", ["t1  # lost", "name=alice", "other\n\n# all of hers\nname=alice"])
def test_a_revoked_token_does_not_count_from_then_on(revoked: str) -> None:
    access = control()
    visitor = access.visitor(PEER)
    text = token_text(grant(Role.OPERATOR))
    other = token_text(grant(Role.OPERATOR, name="bob"), token_id="t2")
    hers, his = admitted(visitor, text), admitted(visitor, other)
    access.adopt(Rules(keys=KEYS, revoked=Revoked.parse(revoked)))
    with pytest.raises(UnauthenticatedError, match=r"^the token has been revoked$"):
        admitted(visitor, text)
    assert not access.valid(hers)
    assert admitted(visitor, other) == his
    assert access.valid(his)


def test_what_was_verified_with_a_key_that_is_gone_is_forgotten() -> None:
    access = control()
    visitor = access.visitor(PEER)
    text = token_text(grant(Role.OPERATOR))
    admitted(visitor, text)
    access.adopt(Rules(keys=FOREIGN))
    with pytest.raises(UnauthenticatedError, match="not valid"):
        admitted(visitor, text)
    access.adopt(Rules())
    with pytest.raises(UnauthenticatedError, match=r"^no tokens are accepted here$"):
        admitted(visitor, text)


def test_a_connection_remembers_few_tokens_and_all_count() -> None:
    visitor = control().visitor(PEER)
    texts = [token_text(grant(Role.OPERATOR, name=f"n{number}"), token_id=f"t{number}") for number in range(100)]
    for _ in range(2):
        assert [admitted(visitor, text).account for text in texts] == [f"token:n{number}" for number in range(100)]
    last = admitted(visitor, texts[-1])
    for text in texts[:31]:
        admitted(visitor, text)
    assert admitted(visitor, texts[-1]) is last
    admitted(visitor, texts[31])
    assert admitted(visitor, texts[-1]) is not last  # it was verified again


def test_certificates_have_roles_by_their_names() -> None:
    access = control(Rules(certificates=parse_certificates("lab.example operator observer # ours\n\n#x\nbob admin\n")))
    alice = access.visitor(PEER, ["unknown", "lab.example"]).admit(START, ())
    assert alice.account == "certificate:lab.example"
    assert (alice.token_id, alice.key_name, alice.expires_at) == ("", "", 0)
    assert alice.grant == Grant(name="lab.example", roles=frozenset([Role.OPERATOR, Role.OBSERVER]))
    with pytest.raises(UnauthenticatedError):
        access.visitor(PEER, ["unknown"]).admit(START, ())
    visitor = access.visitor(PEER, ["bob"])
    bob = visitor.admit("/mine.Service/Method", ())
    assert bob.admin
    access.adopt(Rules(certificates=parse_certificates("bob observer")))
    with pytest.raises(PermissionDeniedError):
        visitor.admit(START, ())
    assert not access.valid(bob)
    assert not access.valid(alice)


def test_a_token_wins_over_a_certificate() -> None:
    access = control(Rules(keys=KEYS, certificates=parse_certificates("bob admin")))
    visitor = access.visitor(PEER, ["bob"])
    assert admitted(visitor, token_text(grant(Role.OPERATOR))).account == "token:alice"
    with pytest.raises(UnauthenticatedError):
        admitted(visitor, "forged")


def test_an_account_of_a_certificate_that_is_named_as_a_token_is_another() -> None:
    access = control(Rules(keys=KEYS, certificates=parse_certificates("alice operator")))
    by_certificate = access.visitor(PEER, ["alice"]).admit(START, ())
    by_token = admitted(access.visitor(PEER), token_text(grant(Role.OPERATOR)))
    assert by_certificate.account != by_token.account


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("bob", "line 1: expected a certificate's name"),
        ("#\na god", "line 2: role: 'god'"),
        ("a admin\na admin", "twice"),
    ],
)
def test_the_file_of_certificates_is_checked(content: str, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        parse_certificates(content)


def test_the_revocation_file_is_checked() -> None:
    assert Revoked.parse("") == Revoked()
    with pytest.raises(InvalidArgumentError, match=r"line 2: expected a token's id or name=NAME, got 'tc1.x.y.z'"):
        Revoked.parse("abc\ntc1.x.y.z\n")


def test_the_server_signs_tokens_of_its_own() -> None:
    clock = Clock()
    access = control(clock=clock)
    text = access.mint(grant(Role.ORCHESTRATOR, name="server", trials=("t",)), 60, ())
    found = admitted(access.visitor(PEER), text, "/cogmentAPI.DatalogSP/RunTrialDatalog")
    assert found.grant.trials == ("t",)
    assert found.expires_at == NOW + 60
    assert access.mint(grant(), 60, ()) != ""
    assert control(Rules()).mint(grant(), 60, ()) == ""


@pytest.mark.parametrize(("seconds", "lasts"), [(0.0, 1), (0.4, 1), (1.4, 1), (1.6, 2), (60.0, 60)])
def test_a_token_of_the_server_lasts_whole_seconds_and_one_at_least(seconds: float, lasts: int) -> None:
    access = control()
    text = access.mint(grant(Role.OPERATOR), seconds, ())
    assert unverified(text).expires_at == NOW + lasts
    assert unverified(access.renew(access.verified(text, local=False), seconds)).expires_at == NOW + lasts


def test_a_token_of_the_server_has_the_whole_of_an_id() -> None:
    """As much of it as the id of a token may have; less of it might not be an id that nobody else has."""
    ids = ["0f-" * 10 + "12-34", "x" * 40]
    access = AccessControl(Rules(keys=KEYS), wall_clock=Clock(), new_id=iter(ids).__next__)
    found = [unverified(access.mint(grant(), 60, ())).token_id for _ in ids]
    assert found == ["0f" * 10 + "1234", "x" * 32]


def test_a_token_says_whose_key_it_was_signed_with() -> None:
    access, text = control(), token_text(grant())
    assert access.has_key_of(text)
    assert access.has_key_of(text[:-2])  # nothing is verified
    assert not access.has_key_of(token_text(grant(), keys=FOREIGN))
    assert not control(Rules()).has_key_of(text)
    for other in ("", "x", text.partition(".")[0], ".".join(text.split(".")[:2])):
        assert not access.has_key_of(other)


def test_a_token_of_the_server_is_withdrawn() -> None:
    clock = Clock()
    access = AccessControl(Rules(keys=KEYS), wall_clock=clock, new_id=iter("abc").__next__)
    first, second = access.mint(grant(Role.WORKER), 60, ()), access.mint(grant(Role.WORKER), 60, ())
    visitor, path = access.visitor(PEER), "/gymgui.trainer.TrainerService/Heartbeat"
    identity = admitted(visitor, first, path)
    access.withdraw(first)
    for asked in (visitor, access.visitor(PEER)):
        with pytest.raises(UnauthenticatedError, match=r"^the token has been revoked$"):
            admitted(asked, first, path)
        assert admitted(asked, second, path).token_id == "b"
    assert not access.valid(identity)
    # New rules change nothing about it, and it need not be known for longer than it would have lasted.
    access.adopt(Rules(keys=KEYS))
    assert not access.valid(identity)
    clock.seconds = NOW + 60
    access.withdraw(second)
    with pytest.raises(UnauthenticatedError, match=r"^the token has expired$"):
        admitted(visitor, first, path)


def test_tokens_that_are_withdrawn_stay_so_when_others_are() -> None:
    """Each until it would have expired; then nothing is left of it."""
    clock = Clock()
    access = AccessControl(Rules(keys=KEYS), wall_clock=clock, new_id=iter("abc").__next__)
    texts = [access.mint(grant(Role.WORKER), seconds, ()) for seconds in (60, 90, 120)]
    path = "/gymgui.trainer.TrainerService/Heartbeat"
    identities = [admitted(access.visitor(PEER), text, path) for text in texts]
    for count, text in enumerate(texts, 1):
        access.withdraw(text)
        assert [access.valid(identity) for identity in identities] == [False] * count + [True] * (3 - count)
    clock.seconds = NOW + 60
    access.withdraw(texts[2])
    assert access._withdrawn == {"b": NOW + 90, "c": NOW + 120}


def test_a_channels_token_is_renewed_when_half_of_its_life_is_over() -> None:
    clock = Clock()
    access = control(clock=clock)
    source = access.source(grant(Role.OPERATOR, name="server"), 60, ())
    first = source()
    clock.seconds = NOW + 29.9
    assert source() == first
    clock.seconds = NOW + 30
    second = source()
    assert second != first
    assert admitted(access.visitor(PEER), second).expires_at == NOW + 90
    access.adopt(Rules(keys=FOREIGN))
    assert FOREIGN.verify(source()).grant.name == "server"
    access.adopt(Rules())
    assert source() == ""


def test_a_token_is_sent_as_metadata() -> None:
    assert authorization("") == ()
    assert authorization("tc1.a") == (("authorization", "Bearer tc1.a"),)
    for bad in ("a b", "a\nb", "ä", "a" * 9000):
        with pytest.raises(InvalidArgumentError, match=r"^token: expected printable ASCII without blanks$"):
            authorization(bad)


# Tokens that were derived from others


def derived(access: AccessControl, text: str, *roles: Role, name: str = "derived") -> str:
    identity = access.verified(text, local=False)
    return access.mint(grant(*(roles or (Role.OPERATOR,)), name=name), 600, identity.derives)


def numbered(rules: Rules | None = None, clock: Clock | None = None, **options: Any) -> AccessControl:
    ids = itertools.count()
    return AccessControl(
        rules or Rules(keys=KEYS), wall_clock=clock or Clock(), new_id=lambda: f"id{next(ids)}", **options
    )


@pytest.mark.parametrize("entry", ["t1", "name=alice", "id0", "name=derived", "id1", "name=last"])
def test_what_was_derived_ends_with_it(entry: str) -> None:
    """Whichever of the line is revoked; what was derived before it goes on, on every server that has read that."""
    here = numbered()
    first = token_text(grant(Role.OPERATOR))
    second = derived(here, first)
    third = derived(here, second, name="last")
    line = {"t1": first, "name=alice": first, "id0": second, "name=derived": second, "id1": third, "name=last": third}
    texts = [first, second, third]
    identities = [here.verified(text, local=False) for text in texts]
    elsewhere = numbered()
    visitor = elsewhere.visitor(PEER)
    for text in texts:
        admitted(visitor, text)
    rules = Rules(keys=KEYS, revoked=Revoked.parse(entry))
    here.adopt(rules)
    elsewhere.adopt(rules)
    revoked_from = texts.index(line[entry])
    for number, (text, identity) in enumerate(zip(texts, identities, strict=True)):
        counts = number < revoked_from
        assert here.valid(identity) is counts
        assert here.stand(identity.derives) is counts
        for asked in (visitor, elsewhere.visitor(PEER)):
            if counts:
                assert admitted(asked, text) == identity
            else:
                with pytest.raises(UnauthenticatedError, match=r"^the token has been revoked"):
                    admitted(asked, text)


def test_what_was_derived_ends_when_its_source_expires_or_its_key_goes() -> None:
    clock = Clock()
    old, both = Keys((bytes(range(2, 34)),)), Keys((bytes(range(32)), bytes(range(2, 34))))
    access = numbered(Rules(keys=both), clock)
    text = derived(access, token_text(grant(Role.OPERATOR), keys=old, expires_at=NOW + 60))
    identity = access.verified(text, local=False)
    visitor = access.visitor(PEER)
    assert admitted(visitor, text) == identity
    clock.seconds = NOW + 60
    with pytest.raises(UnauthenticatedError, match=r"^the token has expired that it was derived from$"):
        admitted(visitor, text)
    assert not access.valid(identity)
    assert access.stand(identity.derives)  # nobody has revoked it
    clock.seconds = NOW
    access.adopt(Rules(keys=KEYS))
    with pytest.raises(UnauthenticatedError, match=r"^the token has been revoked that it was derived from$"):
        admitted(access.visitor(PEER), text)
    assert not access.stand(identity.derives)


def test_what_was_derived_from_a_withdrawn_token_ends() -> None:
    access = numbered()
    first = access.mint(grant(Role.OPERATOR), 60, ())
    second = access.verified(derived(access, first), local=False)
    assert access.valid(second)
    access.withdraw(first)
    assert not access.valid(second)


def test_what_was_derived_from_a_certificate_ends_when_that_is_taken_out() -> None:
    certificates = parse_certificates("ann operator")
    access = numbered(Rules(keys=KEYS, certificates=certificates))
    identity = access.visitor(PEER, ["ann"]).identity
    text = access.mint(grant(Role.OPERATOR, name="derived"), 60, identity.derives)
    assert admitted(access.visitor(PEER), text).grant.name == "derived"
    access.adopt(Rules(keys=KEYS))
    with pytest.raises(UnauthenticatedError, match=r"derived from$"):
        admitted(access.visitor(PEER), text)
    # A server that never had it takes the word of the one that did.
    assert admitted(numbered().visitor(PEER), text).grant.name == "derived"
    access.adopt(Rules(keys=KEYS, certificates=certificates))
    assert admitted(access.visitor(PEER), text).grant.name == "derived"


def test_what_was_derived_from_a_certificate_does_not_come_back_with_a_restart() -> None:
    """A server that has a file of certificates knows those in it, whatever it knew before; the file may be empty."""
    before = numbered(Rules(keys=KEYS, certificates=parse_certificates("ann operator\nbob operator")))
    ann, bob = (before.visitor(PEER, [name]).identity for name in ("ann", "bob"))
    texts = [before.mint(grant(Role.OPERATOR, name="derived"), 60, who.derives) for who in (ann, bob)]
    restarted = numbered(Rules(keys=KEYS, certificates=parse_certificates("bob observer")))
    assert admitted(restarted.visitor(PEER), texts[1]).grant.name == "derived"
    emptied = numbered(Rules(keys=KEYS, certificates={}))
    for access, text in ((restarted, texts[0]), (emptied, texts[0]), (emptied, texts[1])):
        with pytest.raises(UnauthenticatedError, match="the certificate is not known here that it was derived from"):
            admitted(access.visitor(PEER), text)


def test_a_renewed_token_is_the_same_one() -> None:
    clock = Clock()
    access = numbered(clock=clock)
    first = access.verified(derived(access, token_text(grant(Role.OPERATOR))), local=False)
    clock.seconds = NOW + 300
    second = access.verified(access.renew(first, 600), local=False)
    assert second.expires_at == NOW + 900
    assert (second.token_id, second.grant, second.sources) == (first.token_id, first.grant, first.sources)
    access.adopt(Rules(keys=KEYS, revoked=Revoked.parse(first.token_id)))
    assert not access.valid(second)


def test_keys_of_ones_own_beside_the_platforms() -> None:
    """What the platform has revoked counts, for the tokens that these have signed and for what those came from."""
    platform = numbered()
    own = numbered(Rules(keys=FOREIGN), platform=platform)
    ann = platform.verified(token_text(grant(Role.OPERATOR)), local=False)
    from_ann = own.verified(own.mint(grant(Role.OPERATOR, name="seat"), 60, ann.derives), local=False)
    alone = own.verified(own.mint(grant(Role.ADMIN, name="pages"), 60, ()), local=False)
    # The platform's other servers do not know the other keys.
    from_alone = platform.verified(platform.mint(grant(Role.OBSERVER, name="x"), 60, alone.derives), local=False)
    assert own.valid(from_ann)
    assert own.valid(alone)
    assert numbered().valid(from_alone)
    platform.adopt(Rules(keys=KEYS, revoked=Revoked.parse("t1")))
    assert not own.valid(from_ann)
    assert own.valid(alone)
    platform.adopt(Rules(keys=KEYS, revoked=Revoked.parse("name=pages")))
    assert own.valid(from_ann)
    assert not own.valid(alone)
    assert not platform.valid(from_alone)


def test_nobody_derives_for_ever() -> None:
    access = numbered()
    text = token_text(grant(Role.OPERATOR))
    for _ in range(8):
        text = derived(access, text)
    assert len(text) < 4000
    with pytest.raises(InvalidArgumentError, match=r"^sources: expected 8 at most, got 9$"):
        derived(access, text)
