"""Tokens of pages: where they are found, which count, and the address that gives the first one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin

import pytest

from tests.access.keys import FOREIGN, KEYS, NOW, Clock, control, grant, token_text
from trio_cogment.access import EXACTLY, Grant, Identity, Role, Rules
from trio_cogment.base.errors import InvalidArgumentError, PermissionDeniedError, UnauthenticatedError
from trio_cogment.base.host import Host
from trio_cogment.web import PageAccess
from trio_cogment.web.page_access import check_right, cookie_of, expect_known, token_of
from trio_cogment.web.requests import Request, token_in_path

SESSION_SECONDS = 100.0


def page_access(*, keys: bool = False, clock: Clock | None = None) -> PageAccess:
    secrets = itertools.count(1)
    host = Host(wall_clock=clock or Clock(), secret_bytes=lambda size: next(secrets).to_bytes(size, "big"))
    return PageAccess(control(Rules(keys=KEYS)) if keys else None, host=host, session_seconds=SESSION_SECONDS)


def request(method: str = "GET", *, secure: bool = False, foreign: str = "", token: str = "", **fields: Any) -> Request:
    headers = {"host": "127.0.0.1:9000", **fields}
    pairs = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return Request(method, "/", "", pairs, secure, foreign, token)


@pytest.mark.parametrize(
    ("path", "token", "rest"),
    [
        ("/", "", "/"),
        ("/a/~b/c", "", "/a/~b/c"),
        ("/~abc/x/y", "abc", "/x/y"),
        ("/~abc", "abc", "/"),
        ("/~/x", "", "/x"),
        ("/~a/~b/x", "a", "/~b/x"),
    ],
)
def test_the_token_in_a_path(path: str, token: str, rest: str) -> None:
    assert token_in_path(path) == (token, rest)


COOKIE = "other=1; trio-cogment-9000=cookie; trio-cogment=wrong"


def test_the_first_token_counts() -> None:
    assert token_of(request()) == ""
    assert token_of(request(cookie=COOKIE)) == "cookie"
    assert token_of(request(cookie=COOKIE, token="path")) == "path"
    assert token_of(request(cookie=COOKIE, token="path", authorization="Bearer field")) == "field"
    assert token_of(request(cookie=COOKIE, authorization="Basic abc")) == "cookie"
    with pytest.raises(UnauthenticatedError):
        token_of(request(authorization="Bearer " + "x" * 9000))


@pytest.mark.parametrize(
    ("written", "base", "at", "outside"),
    [
        ("/", "", "./a/b", "./a/b"),
        ("/x", "", "./a/b", "./a/b"),
        ("/x/", "", "../a/b", "../a/b"),
        ("/x/y/z", "", "../../a/b", "../../a/b"),
        ("/~T/x", "", "../~T/a/b", "../a/b"),
        ("/~T", "", "./~T/a/b", "./a/b"),
        ("/~T/x", "/lab", "/lab/~T/a/b", "/lab/a/b"),
        ("/", "/lab", "/lab/a/b", "/lab/a/b"),
    ],
)
def test_references_to_other_pages(written: str, base: str, at: str, outside: str) -> None:
    """They are right below any path that a proxy has taken away: a browser resolves them (RFC 3986 section 5.2)."""
    token, path = token_in_path(written)
    asked = Request("GET", path, "", (), token=token, written=written, base=base)
    assert (asked.at("/a/b"), asked.outside("/a/b")) == (at, outside)
    for before in [base] if base else ["", "/p", "/p/q"]:
        browsers = f"https://lab.example.org{before}{written}"
        assert urljoin(browsers, asked.outside("/a/b")) == f"https://lab.example.org{before}/a/b"


def test_no_reference_leaves_the_server() -> None:
    for path in ("//evil.example/x", "///evil.example", "/http://evil.example", "/\\\\evil.example"):
        for base in ("", "/lab"):
            found = urljoin("https://lab.example.org/enter", Request("POST", "/enter", "", (), base=base).outside(path))
            assert found.startswith("https://lab.example.org/")


def test_the_cookie_is_for_the_paths_of_the_server_alone() -> None:
    access = page_access()
    asked = replace(request(secure=True, host="lab.example.org"), base="/lab")
    _, value = access.set_cookie(asked, "abc")
    assert value.startswith(b"__Secure-trio-cogment=abc; Path=/lab/; ")
    assert value.endswith(b"; Secure")
    sent = replace(request(secure=True, host="lab.example.org", cookie="__Secure-trio-cogment=abc"), base="/lab")
    assert cookie_of(sent) == "abc"


UPGRADE: dict[str, Any] = {"upgrade": "websocket"}
OWN: dict[str, Any] = {"origin": "http://127.0.0.1:9000"}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (request("GET", cookie=COOKIE), True),
        (request("HEAD", cookie=COOKIE), True),
        (request("POST", cookie=COOKIE), False),
        (request("POST", cookie=COOKIE, **OWN), True),
        (request("DELETE", cookie=COOKIE), False),
        (request("DELETE", cookie=COOKIE, **OWN), True),
        (request("GET", cookie=COOKIE, **UPGRADE), False),
        (request("GET", cookie=COOKIE, **UPGRADE, **OWN), True),
        (request("GET", cookie=COOKIE, foreign="http://localhost:3000"), False),
        (request("POST", cookie=COOKIE, foreign="http://localhost:3000", origin="http://localhost:3000"), False),
        (request("GET", cookie=COOKIE, host="127.0.0.1:9001"), False),
        (request("GET", cookie=COOKIE, secure=True), False),
        (request("GET", cookie="__Host-trio-cogment-9000=cookie", secure=True), True),
        (request("GET", cookie="__Host-trio-cogment-9000=cookie"), False),
        (request("GET", cookie="trio-cogment=cookie", host="lab.example"), True),
        (request("GET", cookie="trio-cogment-9000"), False),
    ],
)
def test_cookies_count_for_the_servers_own_pages(asked: Request, found: bool) -> None:
    assert cookie_of(asked) == ("cookie" if found else "")


def test_the_cookie() -> None:
    access = page_access()
    name, text = access.set_cookie(request(), "abc")
    assert (name, text) == (
        b"set-cookie",
        b"trio-cogment-9000=abc; Path=/; Max-Age=100; HttpOnly; SameSite=Strict",
    )
    _, text = access.set_cookie(request(secure=True), "abc")
    assert text == b"__Host-trio-cogment-9000=abc; Path=/; Max-Age=100; HttpOnly; SameSite=Strict; Secure"
    _, text = access.set_cookie(request(), "")
    assert text == b"trio-cogment-9000=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


def test_the_address_counts_once() -> None:
    clock = Clock()
    access = page_access(clock=clock)
    with pytest.raises(PermissionDeniedError):
        access.enter("")
    code = access.new_code()
    with pytest.raises(PermissionDeniedError):
        access.enter(code[:-1])
    token = access.enter(code)
    identity = access.identify(token, local=True)
    assert identity.admin
    assert access.is_own(identity)
    assert access.issued(token)
    with pytest.raises(PermissionDeniedError, match=r"works once\. .*SIGHUP"):
        access.enter(code)
    assert access.valid(identity)
    clock.seconds += SESSION_SECONDS
    assert not access.valid(identity)
    with pytest.raises(UnauthenticatedError, match="expired"):
        access.identify(token, local=True)


def test_who_leaves_has_ended_the_session_of_the_address() -> None:
    clock = Clock()
    access = page_access(clock=clock)
    token, other = access.enter(access.new_code()), access.enter(access.new_code())
    identity = access.identify(token, local=True)
    link = access.mint(seat(), 10 * SESSION_SECONDS, identity.derives)
    access.leave(token)
    assert not access.valid(identity)
    with pytest.raises(UnauthenticatedError, match="has left"):
        access.identify(token, local=True)
    assert access.identify(other, local=True).admin  # of another browser
    assert access.valid(access.identify(link, local=True))  # people have it
    clock.seconds += SESSION_SECONDS
    access.leave(other)
    access.leave(token)
    with pytest.raises(UnauthenticatedError, match="expired"):
        access.identify(token, local=True)


@pytest.mark.parametrize("keys", [False, True])
def test_a_token_that_was_given_counts_after_its_browser_has_left(keys: bool) -> None:
    access = page_access(keys=keys)
    texts = [access.mint(seat(), 10, ())]
    texts += [token_text(grant(Role.ADMIN))] if keys else []
    for text in texts:
        access.leave(text)
        assert access.valid(access.identify(text, local=True))
    for text in ("", "tc1", token_text(grant(Role.ADMIN), keys=FOREIGN)):
        access.leave(text)


def test_a_new_address_takes_the_place_of_the_old_one() -> None:
    access = page_access()
    old, new = access.new_code(), access.new_code()
    assert old != new
    with pytest.raises(PermissionDeniedError):
        access.enter(old)
    assert access.enter(new)


def test_another_process_has_another_secret() -> None:
    token = page_access().mint(grant(Role.ADMIN), 10, ())
    other = PageAccess(host=Host(wall_clock=Clock()))
    with pytest.raises(UnauthenticatedError):
        other.identify(token, local=True)


def test_tokens_of_the_platform_count() -> None:
    access = page_access(keys=True)
    identity = access.identify(token_text(grant(Role.OPERATOR)), local=True)
    assert identity.grant.roles == {Role.OPERATOR}
    assert not access.is_own(identity)
    assert access.valid(identity)
    for text in (token_text(grant(Role.ADMIN), keys=FOREIGN), token_text(grant(Role.ADMIN), expires_at=NOW), "", "tc1"):
        with pytest.raises(UnauthenticatedError):
            access.identify(text, local=True)


def seat(trial: str = "t", actor: str = "ann") -> Grant:
    return Grant(name="ann", roles=frozenset([Role.SEAT]), trials=(trial,), actors=(actor,))


@pytest.mark.parametrize("keys", [False, True])
def test_minted_tokens(keys: bool) -> None:
    """Where the platform has a secret they are signed with it, and so survive the process."""
    access = page_access(keys=keys)
    token = access.mint(seat(), 10, ())
    identity = access.identify(token, local=False)
    assert identity.grant == seat()
    assert access.is_own(identity) is not keys
    assert access.issued(token) is not keys


def test_what_was_made_for_a_certificate_ends_with_it() -> None:
    """The platform has no secret, so the process signs; what counts there is the platform's to say."""
    platform = control(Rules(certificates={"ann": seat()}))
    access = PageAccess(platform, host=Host(wall_clock=Clock()))
    ann, _ = platform.identified("ipv4:10.0.0.7:1", ["ann"])
    text = access.mint(seat(), 10, ann.derives)
    assert access.valid(access.identify(text, local=False))
    held = access.identify(text, local=False)
    platform.adopt(Rules(certificates={}))
    assert not access.valid(held)
    with pytest.raises(UnauthenticatedError, match="certificate"):
        access.identify(text, local=False)


def test_rights() -> None:
    who = Identity(account="token:ann", local=True, grant=seat())
    check_right(who, "/pages/play")
    check_right(who, "/cogmentAPI.ClientActorSP/RunTrial")
    for right in ("/pages/dashboard", "/pages/logs", "/pages/new", "/cogmentAPI.TrialLifecycleSP/StartTrial"):
        with pytest.raises(PermissionDeniedError, match=r"roles \(seat\)"):
            check_right(who, right)
    with pytest.raises(PermissionDeniedError, match=r"roles \(none\)"):
        check_right(Identity(account="a", local=True, grant=Grant(name="a")), "/pages/play")
    assert expect_known(who) is who
    with pytest.raises(UnauthenticatedError):
        expect_known(None)


@pytest.mark.parametrize(
    ("trials", "actors"),
    [
        ((), ("ann",)),
        (("t",), ()),
        (("t", "u"), ("ann",)),
        (("t",), ("ann", "bob")),
        (("t*",), ("ann",)),
        (("t",), ("a*",)),
    ],
)
def test_a_seat_is_one_actor_of_one_trial(trials: tuple[str, ...], actors: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="one trial and one actor"):
        Grant(name="ann", roles=frozenset([Role.SEAT]), trials=trials, actors=actors)


def test_a_seat_plays_its_actor_alone() -> None:
    for trial in ("t", EXACTLY + "t"):
        who = Identity(account="token:ann", local=True, grant=seat(trial))
        assert who.plays("t", "", "player", "ann")
        assert not who.plays("t", "", "player", "bob")
        assert not who.plays("t2", "", "player", "ann")
