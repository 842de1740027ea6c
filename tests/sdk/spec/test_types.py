"""Payloads: messages where a type is declared, bytes where none is."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.sdk.spec import ActorClass, Spec, decode, encode


def test_declared_type_goes_both_ways() -> None:
    content = encode(UInt32Value(value=3), UInt32Value, "action")
    assert decode(content, UInt32Value, "action") == UInt32Value(value=3)


def test_without_a_type_bytes_stay_bytes() -> None:
    assert encode(b"raw", None, "action") == b"raw"
    assert decode(b"raw", None, "action") == b"raw"
    assert encode(UInt32Value(value=3), None, "action") == UInt32Value(value=3).SerializeToString()


def test_wrong_payload_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match="action: expected UInt32Value, got StringValue"):
        encode(StringValue(value="x"), UInt32Value, "action")
    with pytest.raises(InvalidArgumentError, match="got str"):
        encode("text", None, "action")  # type: ignore[arg-type]  # that is the test


def test_bytes_that_are_no_message_are_refused_by_name() -> None:
    with pytest.raises(RemoteProtocolError, match="observation: 1 bytes, not a valid UInt32Value"):
        decode(b"\xff", UInt32Value, "observation")


def test_spec_knows_its_classes() -> None:
    player = ActorClass("player", observation=UInt32Value)
    spec = Spec.of(player, environment_config=StringValue)
    assert spec.actor_class("player") is player
    assert spec.actor_class("stranger") == ActorClass("stranger")
    assert list(spec.names()) == ["player"]
    assert spec.environment_config is StringValue


def test_types_need_no_reader_of_files() -> None:
    code = "import sys, trio_cogment.sdk.spec; sys.exit('yaml' in sys.modules or 'subprocess' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    import trio_cogment.sdk.spec

    assert trio_cogment.sdk.spec.load_params.__name__ == "load_params"
    with pytest.raises(AttributeError, match="has no attribute 'load_nothing'"):
        _ = trio_cogment.sdk.spec.load_nothing
