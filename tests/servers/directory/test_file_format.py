"""Our file, the reference's, and what is neither."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.directory.test_entries import entry, ids
from trio_cogment.access import Source
from trio_cogment.servers.directory._entries import SALT_BYTES, Entries, Hasher
from trio_cogment.servers.directory._state_file import Content, FormatError, decode, encode

SALT = bytes(range(SALT_BYTES))
HASHER = Hasher(SALT)


def read(content: Any) -> Content:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return decode(data, lambda: SALT)


def entries_of(*services: dict[str, Any]) -> dict[str, Any]:
    """Return a file of ours with services that are like the one of `SERVICE` but for these members."""
    return {
        "trio-cogment-directory": 1,
        "salt": SALT.hex(),
        "services": [{**SERVICE, "service_id": number, **one} for number, one in enumerate(services, 1)],
    }


SERVICE = {
    "permanent": False,
    "token": HASHER.digest("t").hex(),
    "secret": HASHER.digest("s").hex(),
    "type": 4,
    "protocol": 1,
    "host": "here",
    "port": 9000,
    "properties": {"a": "1"},
}

#: As the reference writes it (services.md names the members); the ids are not numbers in order.
FOREIGN: dict[str, Any] = {
    "7100000000000000001": {
        "Sid": 7100000000000000001,
        "RegisterTimestamp": 1700000002000000000,
        "LastHealthCheckTimestamp": 1700000003000000000,
        "NbFailedHealthChecks": 0,
        "MachineLoad": 12,
        "Permanent": False,
        "AuthenticationToken": "team-a",
        "Secret": "aB-_9",
        "Endpoint": {"protocol": 1, "host": "10.0.0.7", "port": 9001},
        "Details": {"type": 4, "properties": {"__implementation": "grid", "empty": ""}},
    },
    "12": {
        "Sid": 12,
        "RegisterTimestamp": 1700000001000000000,
        "LastHealthCheckTimestamp": 0,
        "NbFailedHealthChecks": 0,
        "MachineLoad": 0,
        "Permanent": True,
        "AuthenticationToken": "",
        "Secret": "12345",
        "Endpoint": {"protocol": 3, "host": "client"},
        "Details": {"type": 3},
    },
}


def test_what_was_written_is_read() -> None:
    entries = Entries(
        [
            entry(2**63 - 1, {"a": "1", "": "ü\n\0"}, permanent=True),
            entry(1, protocol=3, host="client", port=0, kind=3),
            entry(3, protocol=2, kind=100),
        ]
    )
    content = decode(encode(entries, HASHER), lambda: pytest.fail("it has a salt"))
    assert list(content.entries) == list(entries)
    assert content.entries.total_bytes == entries.total_bytes
    assert content.hasher.salt == SALT
    assert not content.foreign
    assert not content.dropped


def test_what_older_files_do_not_say_is_nobodys_and_of_this_process() -> None:
    (one,) = read(entries_of({})).entries
    assert (one.owner, one.reach) == ("", None)
    (one,) = read(entries_of({"owner": "token:me", "reach": "203.0.113.7"})).entries
    assert (one.owner, one.reach) == ("token:me", "203.0.113.7")


def test_whose_it_is_and_how_far_it_may_lead_is_written() -> None:
    sources = (Source("seat", "me", "key"), Source("", "my.certificate"))
    mine = replace(entry(1, owner="token:me"), reach="203.0.113.7", sources=sources)
    anywhere = entry(2, {"city": "Montréal"})
    written = encode(Entries([mine, anywhere]), HASHER)
    assert list(read(written).entries) == [mine, anywhere]
    assert "Montréal".encode() in written  # for people, who read the file, too


@pytest.mark.parametrize("sources", ["t1", [["t1"]], [["t1", "me", "key", "never"]], [7]])
def test_a_registration_whose_tokens_cannot_be_read_is_left_out(sources: Any) -> None:
    """Kept without them it would stay when they are revoked."""
    content = read(entries_of({"sources": sources}))
    assert not list(content.entries)
    assert len(content.dropped) == 1
    assert content.dropped[0].startswith("sources: expected")


def test_what_a_registration_may_leave_out() -> None:
    whole = entries_of({})
    for name, value in (("permanent", False), ("owner", ""), ("reach", None), ("sources", ()), ("properties", {})):
        (service,) = entries_of({})["services"]
        service.pop(name, None)
        (one,) = read({**whole, "services": [service]}).entries
        assert (getattr(one, name, None) or getattr(one.service, name, value)) == value
    for name, text in (
        ("host", "endpoint.host: expected a name or an address, got nothing"),
        ("port", "endpoint.port: expected 1 to 65535, got 0"),
        ("protocol", "endpoint.protocol: expected GRPC (1), GRPC_SSL (2) or COGMENT (3), got 0"),
        ("type", "details.type: expected the type of a service, got 0"),
        ("token", "token: expected 32 bytes, hexadecimal"),
        ("secret", "secret: expected 32 bytes, hexadecimal"),
        ("service_id", "service_id: expected an integer from 1"),
    ):
        (service,) = entries_of({})["services"]
        del service[name]
        content = read({**whole, "services": [service, "no registration"]})
        assert content.dropped == [text, "services: expected an object"]
    assert list(read({name: whole[name] for name in ("trio-cogment-directory", "salt")}).entries) == []


def test_the_largest_id_is_one() -> None:
    (one,) = read(entries_of({"service_id": 2**64 - 1})).entries
    assert one.service_id == 2**64 - 1


def test_a_registration_of_any_size_is_kept() -> None:
    """What was taken once stays, whatever the limit is now."""
    (one,) = read(entries_of({"properties": {"a": "x" * 10_000_000}})).entries
    assert one.service.size > 10_000_000


def test_nothing_secret_is_written() -> None:
    entries = Entries([entry(1, secret="my-secret")])
    assert b"my-secret" not in encode(entries, HASHER)
    assert b"mine" not in encode(entries, HASHER)


def test_the_file_of_the_reference() -> None:
    content = read(FOREIGN)
    assert content.foreign
    assert not content.dropped
    old, new = content.entries
    assert (old.service_id, new.service_id) == (12, 7100000000000000001)  # in the order of their registration
    assert (old.permanent, old.exempt, new.permanent, new.exempt) == (True, True, False, False)
    assert (old.token, old.secret) == (HASHER.digest(""), HASHER.digest("12345"))
    assert (new.token, new.secret) == (HASHER.digest("team-a"), HASHER.digest("aB-_9"))
    assert (new.service.host, new.service.port) == ("10.0.0.7", 9001)
    assert dict(new.service.properties) == {"__implementation": "grid", "empty": ""}
    assert (old.service.protocol, old.service.host, old.service.port, old.service.kind) == (3, "client", 0, 3)
    again = decode(encode(content.entries, content.hasher), lambda: pytest.fail("it has a salt"))
    assert list(again.entries) == list(content.entries)


def test_of_the_reference_s_those_without_a_time_are_the_oldest() -> None:
    timeless = {name: value for name, value in FOREIGN["12"].items() if name != "RegisterTimestamp"}
    content = read(
        {"1": {**timeless, "RegisterTimestamp": 1}, "2": timeless, "3": {**timeless, "RegisterTimestamp": -1}}
    )
    assert ids(content.entries) == [3, 2, 1]
    assert {one.owner for one in content.entries} == {""}


def test_what_the_reference_leaves_out_is_empty() -> None:
    item: dict[str, Any] = {"Endpoint": {"protocol": 3, "host": "client"}, "Details": {"type": 3}}
    (found,) = read({"5": item}).entries
    assert (found.service.port, dict(found.service.properties)) == (0, {})
    assert (found.permanent, found.token, found.secret) == (False, HASHER.digest(""), HASHER.digest(""))
    del item["Endpoint"]["host"]
    content = read({"5": item})
    assert not len(content.entries)
    assert content.dropped == ["endpoint.host: expected a name or an address, got nothing"]


@pytest.mark.parametrize("data", [b"", b" \n", b"{}"])
def test_files_with_nothing(data: bytes) -> None:
    content = read(data)
    assert not len(content.entries)
    assert content.foreign


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\0\1", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ([], "the file: expected an object"),
        ("text", "the file: expected an object"),
        ({"a": 1}, "not a file of a directory"),
        ({"a": {"b": 1}}, "not a file of a directory"),
        ({"trio-cogment-directory": 2}, "expected 1, got 2"),
        ({"trio-cogment-directory": True}, "expected 1, got True"),
        ({"trio-cogment-directory": 1}, "salt: expected 32 bytes"),
        ({"trio-cogment-directory": 1, "salt": "00"}, "salt: expected 32 bytes"),
        ({"trio-cogment-directory": 1, "salt": 7}, "salt: expected another type"),
        ({"trio-cogment-directory": 1, "salt": SALT.hex(), "services": {}}, "services: expected another type"),
    ],
)
def test_what_is_no_such_file(content: Any, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        read(content)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"service_id": 0}, "service_id: expected an integer from 1"),
        ({"service_id": True}, "service_id: expected an integer from 1"),
        ({"service_id": 2**64}, "service_id: expected an integer from 1"),
        ({"service_id": 2}, "service 2 appears twice"),
        ({"port": 0}, "endpoint.port: expected 1 to 65535, got 0"),
        ({"port": -1}, "port: expected an integer from 0"),
        ({"port": 1.5}, "port: expected an integer from 0"),
        ({"host": ""}, "endpoint.host: expected a name"),
        ({"host": None}, "host: expected another type of value"),
        ({"protocol": 9}, "endpoint.protocol: expected GRPC"),
        ({"type": 11}, "details.type: expected the type"),
        ({"permanent": 1}, "permanent: expected another type of value"),
        ({"token": "00"}, "token: expected 32 bytes"),
        ({"secret": "zz"}, "secret: expected 32 bytes"),
        ({"properties": []}, "properties: expected another type"),
        ({"properties": {"a": 1}}, "properties: expected strings as values"),
        ({"properties": {"a": "\ud800"}}, "expected valid Unicode text"),
    ],
)
def test_a_bad_registration_is_left_out(changes: dict[str, Any], text: str) -> None:
    content = read(entries_of(changes, {}) if changes.get("service_id") != 2 else entries_of({}, {}, changes))
    assert {2} <= set(ids(content.entries))
    [problem] = content.dropped
    assert text in problem


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("x", {}, "expected the number of a service, got 'x'"),
        ("-1", {}, "expected the number of a service"),
        ("9" * 5000, {}, "expected the number of a service"),
        ("0" * 19 + "12", {}, "expected the number of a service, got '000000000000000000012'"),
        ("0" * 18 + "12", {}, "service 12 appears twice"),
        ("1", "text", "service 1: expected an object"),
        ("0", {}, "id: expected an integer from 1"),
        ("99999999999999999999", {}, "id: expected an integer from 1"),
        ("012", {}, "service 12 appears twice"),
        ("1", {"Endpoint": None}, "Endpoint: expected an object"),
        ("1", {"Details": 3}, "Details: expected an object"),
        ("1", {"Endpoint": {"protocol": 1, "host": "h"}}, "endpoint.port: expected 1"),  # the reference allows that
        ("1", {"Secret": None}, "Secret: expected another type"),
        ("1", {"AuthenticationToken": "\ud800"}, "expected valid Unicode text"),
    ],
)
def test_a_bad_registration_of_the_reference_is_left_out(name: str, changes: Any, text: str) -> None:
    item = {**FOREIGN["12"], "RegisterTimestamp": "later", **changes} if isinstance(changes, dict) else changes
    content = read({**FOREIGN, name: item})
    assert len(content.entries) == 2 or name.endswith("012")
    [problem] = content.dropped
    assert text in problem


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(
    st.binary(max_size=100)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from([*SERVICE, "service_id"]), JSON).map(
        lambda changes: json.dumps(entries_of({}, changes)).encode()
    )
    | st.dictionaries(st.sampled_from(list(FOREIGN["12"])), JSON).map(
        lambda changes: json.dumps({**FOREIGN, "5": {**FOREIGN["12"], **changes}}).encode()
    )
)
def test_any_file_is_read_or_refused(data: bytes) -> None:
    try:
        content = read(data)
    except FormatError:
        return
    again = decode(encode(content.entries, content.hasher), lambda: SALT)
    assert list(again.entries) == list(content.entries)
    assert not again.dropped
