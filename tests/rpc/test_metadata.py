"""Metadata: what may travel, and what is read of it."""

from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.rpc.metadata import Metadata, basic_auth


@pytest.fixture
def pairs() -> Metadata:
    return Metadata([("A", "1"), ("b", "2"), ("a", "3"), ("c-bin", b"\0"), ("c-bin", b"\1")])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *[(name, "HTTP/2") for name in ("connection", "keep-alive", "proxy-connection", "te", "transfer-encoding")],
        *[(name, "HTTP/2") for name in ("upgrade", "Upgrade", "TE")],
        *[(name, "reserved") for name in ("grpc-", "grpc-status", "GRPC-Timeout")],
        *[(name, "expected letters") for name in ("", " ", "a b", ":path", "ä", "a\n", "a/b")],
    ],
)
def test_names_that_may_not_travel_are_refused(name: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"metadata name .*{why}"):
        Metadata({name: "x"})


@pytest.mark.parametrize("name", ["a", "a-b_c.d9", "te2", "grpc", "my-grpc-status", "connections", "X-Upper"])
def test_other_names_are_in_lower_case(name: str) -> None:
    assert Metadata({name: "x"}) == ((name.lower(), "x"),)


@pytest.mark.parametrize(
    ("name", "value"), [("a", b"bytes"), ("a", 3), ("a", "ä"), ("a", "a\nb"), ("a", "\x7f"), ("a-bin", "text")]
)
def test_values_that_may_not_travel_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"metadata '{name}'"):
        Metadata({name: value})


def test_what_is_read_of_it(pairs: Metadata) -> None:
    assert list(pairs) == [("a", "1"), ("b", "2"), ("a", "3"), ("c-bin", b"\0"), ("c-bin", b"\1")]
    assert pairs.first("a") == "1"
    assert pairs.first("c-bin") == b"\0"
    assert pairs.first("d") is None
    assert pairs.all("a") == ["1", "3"]
    assert pairs.all("c-bin") == [b"\0", b"\1"]
    assert pairs.all("d") == []
    assert pairs.texts("a") == ["1", "3"]
    assert pairs.texts("c-bin") == []


def test_it_is_made_of_pairs_of_mappings_and_of_itself(pairs: Metadata) -> None:
    assert Metadata(pairs) is pairs
    assert Metadata(()) == Metadata({}) == ()
    assert Metadata(iter([("a", " padded "), ("a", "")])) == (("a", "padded"), ("a", ""))


def test_the_metadata_of_basic_authentication() -> None:
    assert basic_auth("Aladdin", "open sesame") == ("authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
    assert basic_auth("a", "b:c") == ("authorization", "Basic YTpiOmM=")
    with pytest.raises(InvalidArgumentError, match="username: expected no colon"):
        basic_auth("a:b", "c")
