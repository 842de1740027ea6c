"""Endpoints that peers have named, and the networks they may lead to."""

from __future__ import annotations

import pytest

from trio_cogment.access import EVERYTHING, THIS_PROCESS, Grant, Identity, Networks, Role, parse_networks, reach_of
from trio_cogment.access.identity import anonymous
from trio_cogment.base.errors import InvalidArgumentError

PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
PRIVATE = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.17.0.3", "192.168.1.5", "169.254.169.254", "100.64.0.1",
    "224.0.0.1", "::1", "::", "fd00::2", "fe80::1%eth0", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
    "::7f00:1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "fec0::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_everybody_may_name_public_addresses(address: str) -> None:
    assert Networks().permits(address, "203.0.113.7")
    assert Networks().permits(address, "")
    assert Networks().permits(address, None)


@pytest.mark.parametrize("address", PRIVATE)
def test_only_callers_of_this_machine_may_name_private_ones(address: str) -> None:
    assert not Networks().permits(address, "203.0.113.7")
    assert not Networks().permits(address, "")
    assert Networks().permits(address, None)


def test_everybody_may_name_their_own_address() -> None:
    assert Networks().permits("192.168.1.5", "192.168.1.5")
    assert Networks().permits("fd00::2", "fd00:0::2")
    assert Networks().permits("::ffff:10.0.0.1", "10.0.0.1")
    assert not Networks().permits("192.168.1.6", "192.168.1.5")


def test_lists_open_and_close() -> None:
    networks = Networks(
        allowed=parse_networks(["192.168.0.0/16", " fd00::/8 "], "allowed_networks"),
        denied=parse_networks(["192.168.66.1", "8.8.0.0/16"], "denied_networks"),
    )
    assert networks.permits("192.168.1.1", "203.0.113.7")
    assert networks.permits("fd00::1", "203.0.113.7")
    assert not networks.permits("10.0.0.1", "203.0.113.7")
    for reach in ("203.0.113.7", "192.168.66.1", None):
        assert not networks.permits("192.168.66.1", reach)
        assert not networks.permits("::ffff:192.168.66.1", reach)
        assert not networks.permits("8.8.8.8", reach)


def test_a_network_is_closed_in_whichever_form_an_address_is_written() -> None:
    networks = Networks(denied=parse_networks(["64:ff9b::/96", "::ffff:8.8.0.0/112"], "denied_networks"))
    for address in ("64:ff9b::808:808", "::ffff:8.8.8.8"):
        assert not networks.permits(address, None)
    assert networks.permits("8.8.8.8", "")


def test_what_is_no_network_is_named_with_its_field() -> None:
    with pytest.raises(InvalidArgumentError, match="denied_networks: expected a network such as"):
        parse_networks(["everything"], "denied_networks")


def test_how_far_a_caller_s_endpoints_lead() -> None:
    admin = Grant(name="root", roles=frozenset([Role.ADMIN]))
    assert reach_of(THIS_PROCESS, "inprocess") is None
    assert reach_of(anonymous("ipv4:127.0.0.1:5"), "ipv4:127.0.0.1:5") is None
    assert reach_of(anonymous("unix:"), "unix:") is None
    assert reach_of(anonymous("stream"), "stream") is None
    assert reach_of(anonymous("unknown"), "unknown") == ""
    assert reach_of(anonymous("ipv4:10.0.0.7:5", EVERYTHING), "ipv4:10.0.0.7:5") == "10.0.0.7"
    assert reach_of(anonymous("ipv6:[fd00::2]:5"), "ipv6:[fd00::2]:5") == "fd00::2"
    proven = Identity(account="token:root", local=False, grant=admin)
    assert reach_of(proven, "ipv4:10.0.0.7:5") is None
    operator = Identity(account="token:op", local=False, grant=Grant(name="op", roles=frozenset([Role.OPERATOR])))
    assert reach_of(operator, "ipv4:10.0.0.7:5") == "10.0.0.7"
