"""Known advisories of dependencies that are pinned: what they describe does not happen here."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib.metadata import distribution, requires
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio
from hpack import HPACKDecodingError
from packaging.requirements import Requirement
from tools.audit import PAGE, Advisory, advisories, judge

from tests.rpc.raw_peer import END_HEADERS, END_STREAM, RawPeer, frame, message, raw_client, request_headers
from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.errors import InvalidArgumentError, StatusCode
from trio_cogment.rpc import Channel, Metadata, open_listeners, serve
from trio_cogment.rpc._hpack import Decoder
from trio_cogment.testing.conformance.channel import COUNT, ECHO, ECHO_ONE, SUM, CheckService

ROOT = Path(__file__).parents[2]
DATA = 0
ONE = b"/trio_cogment.testing.Check/EchoOne"
GOOD = [(b"x-note", b"fine")]


def refuses(name: str) -> Callable[..., NoReturn]:
    """Return what stands for a function that is not to be called."""

    def called(*_arguments: object, **_options: object) -> NoReturn:
        raise AssertionError(f"{name} was called")

    return called


async def asked(peer: RawPeer, stream: int, path: bytes, fields: list[tuple[bytes, bytes]]) -> Any:
    await peer.send(
        peer.headers(stream, [*request_headers(path), *fields], END_HEADERS),
        frame(DATA, END_STREAM, stream, message(Action(tick_id=7).SerializeToString())),
    )
    return await peer.until_over(stream)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (ONE, [(b"x-note", b"a\r\nx-other: b")]),
        (ONE, [(b"x-note", b"a\nb")]),
        (ONE, [(b"x-note", b"a\0b")]),
        (ONE, [(b"x-no\r\nte", b"a")]),
        (ONE, [(b"x note", b"a")]),
        (ONE, [(b"x-note:", b"a")]),
        (ONE, [(b"X-Note", b"a")]),
        (ONE, [(b"", b"a")]),
        (ONE + b"\r\nx-other: b", []),
        (ONE + b" HTTP/1.1", []),
    ],
)
async def test_headers_with_control_characters_are_refused(path: bytes, fields: list[tuple[bytes, bytes]]) -> None:
    """CVE-2025-57804. Their call gets a status, no handler sees them, and the connection goes on."""
    service = CheckService()
    async with raw_client([service.service()]) as peer:
        answer = await asked(peer, 1, path, fields)
        assert answer.status in (StatusCode.INTERNAL, StatusCode.UNIMPLEMENTED)
        assert not answer.data
        good = await asked(peer, 3, ONE, GOOD)
        assert (good.status, good.headers[0][-1]) == (StatusCode.OK, GOOD[0])


@pytest.mark.parametrize("value", ["a\r\nx-other: b", "a\nb", "a\0b"])
def test_headers_with_control_characters_are_not_sent(value: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Metadata([("x-note", value)])


@pytest.mark.parametrize("hosts", [[b"here"], [b"here", b"there"], [b"there", b"there"]])
async def test_host_headers_go_nowhere(hosts: list[bytes]) -> None:
    """CVE-2026-71554. However many there are, a handler gets none of them, and so passes none on."""
    seen: list[list[tuple[str, str | bytes]]] = []

    class Service(CheckService):
        async def echo_one(self, call: Any) -> None:
            seen.append(list(call.metadata))
            await super().echo_one(call)

    async with raw_client([Service().service()]) as peer:
        answer = await asked(peer, 1, ONE, [*[(b"host", host) for host in hosts], *GOOD])
        assert answer.status == StatusCode.OK
        assert not any(name == b"host" for block in answer.headers for name, _ in block)
    assert seen == [[("x-note", "fine")]]


async def test_h2_and_hpack_get_no_header_block_of_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those of requests nor those of responses: what is wrong with their reading is not reached."""
    for name in (
        "h2.connection.H2Connection._receive_headers_frame",
        "h2.connection.H2Connection._receive_push_promise_frame",
        "h2.stream.H2Stream.receive_headers",
        "hpack.Decoder.decode",
        "hpack.hpack.decode_integer",
    ):
        monkeypatch.setattr(name, refuses(name))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            serving = await nursery.start(partial(serve, [CheckService().service()], listeners))
            async with Channel("127.0.0.1", serving.port) as channel:
                found = await channel.unary(ECHO_ONE, Action(tick_id=7), metadata=[("x-note", "fine")])
                assert found.tick_id == 7
                async with channel.call(COUNT) as count:
                    await count.send(Action(tick_id=3))
                    await count.done_sending()
                    assert [each.tick_id async for each in count] == [0, 1, 2]
                for method in (SUM, ECHO):
                    async with channel.call(method) as call:
                        await call.send(Action(tick_id=1))
                        await call.done_sending()
                        assert len([each async for each in call]) == 1
            nursery.cancel_scope.cancel()


def test_hpack_integers_of_a_peer_are_bounded() -> None:
    """GHSA-8v8h-hg4w-mvq2: seven octets are too many; `test__hpack` has more of it."""
    for first in (0xFF, 0x3F, 0x7F, 0x0F, 0x1F):
        with pytest.raises(HPACKDecodingError, match="integer too long"):
            Decoder(65536).decode(bytes([first]) + b"\x80" * 5 + b"\0")


# The table of the page


def test_the_page_names_versions_that_are_pinned_and_tests_that_are_there() -> None:
    rows = advisories(PAGE.read_text())
    assert {row.package for row in rows} == {"h2", "hpack"}
    for row in rows:
        assert distribution(row.package).version == row.version
        assert row.tests
        for name in row.tests:
            file, _, test = name.partition("::")
            assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE), name


def test_what_pins_them() -> None:
    """When these let newer versions in, the table can go."""
    for package, needed, mended in (("purerpc", "h2", "4.4.1"), ("h2", "hpack", "4.2.0")):
        [wanted] = [each for each in map(Requirement, requires(package) or ()) if each.name == needed]
        assert mended not in wanted.specifier


KNOWN = [Advisory("h2", "3.2.0", frozenset({"CVE-1-1", "PYSEC-1-1"}), ())]


def vulnerable(name: str, *ids: str) -> dict[str, Any]:
    first, *others = ids
    return {"name": name, "version": "1", "vulns": [{"id": first, "aliases": others, "fix_versions": ["2", "3"]}]}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([{"name": "h11", "version": "1", "vulns": []}], []),
        ([vulnerable("h2", "GHSA-a", "CVE-1-1")], []),
        ([vulnerable("h2", "PYSEC-1-1")], []),
        ([vulnerable("h2", "CVE-1-2")], ["h2 1: CVE-1-2, mended in 2, 3"]),
        ([vulnerable("hpack", "CVE-1-1")], ["hpack 1: CVE-1-1, mended in 2, 3"]),
        (
            [{"name": "a", "skip_reason": "not found"}, {"name": "h11", "version": "1", "vulns": []}],
            ["a: not found"],
        ),
        ([{"name": "trio-cogment", "skip_reason": "not found"}, vulnerable("h2", "CVE-1-1")], []),
        ([{"name": "trio-cogment", "skip_reason": "not found"}, {"name": "a", "skip_reason": "not found"}], None),
        ([], None),
    ],
)
def test_what_an_audit_finds(found: list[dict[str, Any]], expected: list[str] | None) -> None:
    assert judge({"dependencies": found}, KNOWN) == expected


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("# Security\n", "expected the heading"),
        ("## Known advisories\n\n| a | b |\n|---|---|\n| h2 3.2.0 | CVE-2025-1 |\n", "expected dependency"),
        ("## Known advisories\n\n| a | b |\n|---|---|\n| h2 3.2.0 | none | x | `y` |\n", "expected dependency"),
    ],
)
def test_a_page_without_such_a_table_is_refused(page: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        advisories(page)
