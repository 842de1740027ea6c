"""Origins that may use a server from a browser: the rule, and that it holds for every method and every WebSocket."""

from __future__ import annotations

import pytest

from tests.web.peers import ECHO, ECHO_ONE, HOST, served, websocket_fields
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.web import OriginPolicy, WebSide
from trio_cogment.web.origins import Admitted, Authority, Origin, PublicAddress

OWN = Admitted()


def admit(
    host: str, origin: str | None = None, *, policy: OriginPolicy | None = None, secure: bool = False
) -> Admitted | None:
    """Return what a policy says; None: refused."""
    found = (policy or OriginPolicy()).admit(hosts=[host], origins=[] if origin is None else [origin], secure=secure)
    return found if isinstance(found, Admitted) else None


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:9000", "[::1]:9000", "[::1]", "10.1.2.3:80", "localhost:9000", "LOCALHOST", "localhost."],
)
def test_addresses_and_localhost_are_known(host: str) -> None:
    found = admit(host)
    assert found is not None
    assert (found.foreign, found.secure, found.public) == ("", False, False)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:9000", "localhost.evil.example", "127.0.0.1.evil.example", "", " ", "a b"),
        *("127.0.0.1@evil.example", "evil.example/127.0.0.1", "[::1].evil.example", "[evil.example]", "0x7f000001"),
        *("2130706433", "127.1", "localhost:99999", "127.0.0.1:x", "::1", "a:b:c"),
    ],
)
def test_other_names_are_not(host: str) -> None:
    assert admit(host) is None


def test_names_can_be_allowed() -> None:
    policy = OriginPolicy(hosts=["Lab.Example.org"])
    assert admit("lab.example.org:9000", policy=policy) == OWN
    assert admit("sub.lab.example.org", policy=policy) is None
    assert admit("lab.example.org", policy=OriginPolicy(hosts=["lab.example.org."])) == OWN
    assert admit("anything.example", policy=OriginPolicy(hosts=["*"])) == OWN


def test_one_host_is_expected() -> None:
    policy = OriginPolicy()
    assert isinstance(policy.admit(hosts=[], origins=[], secure=False), str)
    assert isinstance(policy.admit(hosts=["localhost", "localhost"], origins=[], secure=False), str)


@pytest.mark.parametrize(
    ("host", "origin", "secure", "foreign"),
    [
        ("10.0.0.5:9000", "http://10.0.0.5:9000", False, ""),
        ("10.0.0.5", "http://10.0.0.5", False, ""),
        ("10.0.0.5", "http://10.0.0.5:80", False, ""),
        ("10.0.0.5:443", "https://10.0.0.5", True, ""),
        ("10.0.0.5", "https://10.0.0.5", False, ""),  # a proxy has the TLS
        ("10.0.0.5", "http://10.0.0.5", True, None),
        ("10.0.0.5:9000", "http://10.0.0.5:9001", False, None),
        ("10.0.0.5:9000", "http://10.0.0.6:9000", False, None),
        ("127.0.0.1:9000", "http://127.0.0.1:8080", False, "http://127.0.0.1:8080"),
        ("127.0.0.1:9000", "http://localhost:8080", False, "http://localhost:8080"),
        ("[::1]:9000", "http://localhost", False, "http://localhost"),
        ("localhost:9000", "https://[::1]:8443", True, "https://[::1]:8443"),
        ("10.0.0.5:9000", "http://localhost:8080", False, None),
        ("127.0.0.1:9000", "http://10.0.0.5", False, None),
        ("127.0.0.1:9000", "https://evil.example", False, None),
        ("127.0.0.1:9000", "null", False, None),
        ("127.0.0.1:9000", "", False, None),
        ("127.0.0.1:9000", "file://", False, None),
        ("127.0.0.1:9000", "chrome-extension://abc", False, None),
        ("127.0.0.1:9000", "http://127.0.0.1:8080/path", False, None),
        ("127.0.0.1:9000", "http://localhost@evil.example", False, None),
    ],
)
def test_origins(host: str, origin: str, secure: bool, foreign: str | None) -> None:
    assert admit(host, origin, secure=secure) == (None if foreign is None else Admitted(foreign, secure))


def test_origins_can_be_allowed() -> None:
    policy = OriginPolicy(origins=["https://Lab.example.org", "http://10.0.0.7:8080/"])
    assert admit("10.0.0.5", "https://lab.example.org", policy=policy) == Admitted("https://lab.example.org")
    assert admit("10.0.0.5", "https://lab.example.org:443", policy=policy) is not None
    assert admit("10.0.0.5", "http://lab.example.org", policy=policy) is None
    assert admit("10.0.0.5", "http://10.0.0.7:8080", policy=policy) is not None
    any_origin = OriginPolicy(origins=["*"])
    assert admit("10.0.0.5", "https://evil.example", policy=any_origin) == Admitted("https://evil.example")
    assert admit("10.0.0.5", "null", policy=any_origin) is None
    assert admit("evil.example", "https://evil.example", policy=any_origin) is None


BEHIND = OriginPolicy(address=PublicAddress.parse("https://lab.example.org/cogment"))


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("lab.example.org", None, Admitted("", secure=True, public=True)),
        ("lab.example.org:443", "https://lab.example.org", Admitted("", secure=True, public=True)),
        ("lab.example.org", "http://lab.example.org", None),  # its page may be anybody's in between
        ("lab.example.org", "https://lab.example.org:8443", None),
        ("lab.example.org", "https://evil.example", None),
        ("lab.example.org", "null", None),
        ("lab.example.org:9000", "http://lab.example.org:9000", Admitted()),  # past the proxy
        ("127.0.0.1:9000", "https://lab.example.org", Admitted()),  # a proxy that has replaced the Host
        ("127.0.0.1:9000", "https://lab.example.org:443", Admitted()),
        ("127.0.0.1:9000", "http://lab.example.org", None),
        ("127.0.0.1:9000", "http://127.0.0.1:9000", Admitted()),
        ("evil.example", "https://lab.example.org", None),
        ("evil.example", None, None),
    ],
)
def test_a_public_address(host: str, origin: str | None, expected: Admitted | None) -> None:
    assert admit(host, origin, policy=BEHIND) == expected


@pytest.mark.parametrize(
    ("text", "shown", "prefix"),
    [
        ("https://Lab.example.org", "https://lab.example.org", ""),
        ("https://lab.example.org/", "https://lab.example.org", ""),
        ("http://lab:8080/a/b_c.d-e/", "http://lab:8080/a/b_c.d-e", "/a/b_c.d-e"),
        ("https://[::1]:8443/x", "https://[::1]:8443/x", "/x"),
    ],
)
def test_public_addresses(text: str, shown: str, prefix: str) -> None:
    address = PublicAddress.parse(text)
    assert str(address) == shown
    assert address.prefix == prefix


@pytest.mark.parametrize(
    "text",
    [
        *(
            "lab.example.org",
            "/lab",
            "ftp://lab",
            "https://",
            "https://lab//x",
            "https://lab/~token/",
            "https://lab/../x",
        ),
        *("https://lab/a?b", "https://lab/a#b", "https://me@lab/a", "https://lab/%2e", "https://lab/a b", ""),
    ],
)
def test_what_is_no_public_address(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="expected https://NAME"):
        PublicAddress.parse(text)


def test_two_origins_are_refused() -> None:
    found = OriginPolicy(origins=["*"]).admit(hosts=["localhost"], origins=["http://a", "http://b"], secure=False)
    assert isinstance(found, str)


@pytest.mark.parametrize(
    ("hosts", "origins"), [(["a:80"], []), ([""], []), ([], ["lab"]), ([], ["null"]), ([], ["ftp://a"])]
)
def test_what_cannot_be_allowed(hosts: list[str], origins: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="expected"):
        OriginPolicy(hosts, origins)


def test_parts() -> None:
    assert Authority.parse("[::1]:1") == Authority("::1", 1)
    assert Authority.parse("x:65536") is None
    assert Origin.parse("https://x") == Origin("https", Authority("x", None))


FOREIGN = {
    "origin": {"origin": "https://evil.example"},
    "null": {"origin": "null"},
    "host": {"host": "evil.example:9000"},
    "host-and-origin": {"host": "evil.example:9000", "origin": "http://evil.example:9000"},
}
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "WebSocket"]


@pytest.mark.parametrize("path", ["/", ECHO_ONE, ECHO, "/elsewhere"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fields", FOREIGN.values(), ids=FOREIGN.keys())
async def test_foreign_pages_get_nothing(
    fields: dict[str, str], method: str, path: str, autojump_clock: object
) -> None:
    more = {"access_control_request_method": "POST"} if method == "OPTIONS" else {}
    more |= {"content_type": "application/grpc-web+proto"} if method == "POST" else {}
    more |= websocket_fields() if method == "WebSocket" else {}
    async with served() as there:
        answer = await there.ask("GET" if method == "WebSocket" else method, path, b"", **fields, **more)
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
        assert "access-control-allow-headers" not in answer.headers
        assert await there.rest() == b""
        assert not there.service.entered.is_set()


async def test_no_guess_is_made_from_user_agents(autojump_clock: object) -> None:
    for agent in ("Mozilla/5.0", "curl/8", ""):
        async with served() as there:
            assert (await there.ask("DELETE", "/", origin="https://evil.example", user_agent=agent)).status == 403
        async with served() as there:
            assert (await there.ask("GET", "/", user_agent=agent)).status == 200


async def test_pages_of_this_machine_may_ask(autojump_clock: object) -> None:
    page = "http://localhost:8080"
    async with served() as there:
        answer = await there.ask(
            "OPTIONS",
            ECHO_ONE,
            origin=page,
            access_control_request_method="POST",
            access_control_request_headers="content-type,x-grpc-web,trial-id",
        )
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == page
        assert answer.headers["access-control-allow-methods"] == "POST"
        assert answer.headers["access-control-allow-headers"] == "content-type,x-grpc-web,trial-id"
        assert answer.headers["access-control-max-age"] == "600"
        assert "access-control-allow-credentials" not in answer.headers
        assert answer.headers["vary"] == "origin"
        answer = await there.ask("GET", "/", origin=page)
        assert answer.headers["access-control-allow-origin"] == page
        assert "grpc-status" in answer.headers["access-control-expose-headers"]
        answer = await there.ask("OPTIONS", ECHO_ONE, origin=page, access_control_request_method="DELETE")
        assert answer.status == 403


async def test_own_pages_need_no_permission(autojump_clock: object) -> None:
    async with served() as there:
        answer = await there.ask("GET", "/", origin=f"http://{HOST}")
        assert answer.status == 200
        assert "access-control-allow-origin" not in answer.headers


async def test_every_answer_has_the_security_headers(autojump_clock: object) -> None:
    async with served(WebSide(OriginPolicy())) as there:
        for method, path in (("GET", "/"), ("GET", "/none"), ("GET", ECHO), ("POST", "/"), ("POST", ECHO)):
            headers = (await there.ask(method, path)).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"  # else forms come without an origin
        answer = await there.ask("GET", ECHO, b"", **websocket_fields())
        assert answer.status == 101
        assert answer.headers["x-content-type-options"] == "nosniff"
