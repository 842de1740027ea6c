"""Files of revocations and of certificates: what their lines mean, and which line is wrong."""

from __future__ import annotations

import re

import pytest

from trio_cogment.access import Revoked, Role, Rules, parse_certificates
from trio_cogment.base.errors import InvalidArgumentError


def test_revocations() -> None:
    found = Revoked.parse("t1 # lost\n\n  t2\nname=ann\n name= bob smith # left\n# all\n")
    assert found.token_ids == {"t1", "t2"}
    assert found.names == {"ann", "bob smith"}
    assert (found.has("t1", "x"), found.has("x", "ann"), found.has("x", "bob smith")) == (True, True, True)
    assert (found.has("x", "y"), found.has("ann", "t1")) == (False, False)
    assert Revoked.parse("") == Revoked()


@pytest.mark.parametrize("wrong", ["t-1", "two ids", "tc1.k.c.s", "names=ann", "x" * 70 + "-"])
def test_a_line_that_is_no_revocation(wrong: str) -> None:
    text = f"line 3: expected a token's id or name=NAME, got {wrong[:64]!r}"
    with pytest.raises(InvalidArgumentError, match=f"^{re.escape(text)}$"):
        Revoked.parse(f"t1\n# x\n{wrong}\nt2")


def test_certificates() -> None:
    found = parse_certificates("lab.example operator observer # ours\n\n#x\n\tbob  admin\n")
    assert {name: grant.roles for name, grant in found.items()} == {
        "lab.example": {Role.OPERATOR, Role.OBSERVER},
        "bob": {Role.ADMIN},
    }
    assert [grant.name for grant in found.values()] == ["lab.example", "bob"]
    rules = Rules(certificates=found)
    assert rules.of_certificate("bob") == found["bob"]
    assert rules.of_certificate("ann") is None
    assert Rules().of_certificate("bob") is None
    assert parse_certificates("") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann admin\nbob\n", "line 2: expected a certificate's name and its roles"),
        ("ann admin\n\nann operator\n", "line 3: 'ann' is there twice"),
        ("ann king\n", "line 1: "),
        ("# x\nann admin king\n", "line 2: "),
    ],
)
def test_a_line_that_is_no_certificate(text: str, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{re.escape(expected)}"):
        parse_certificates(text)
