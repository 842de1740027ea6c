"""Tokens as text: what is signed comes back, and nothing else does."""

from __future__ import annotations

import base64
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.access.keys import FOREIGN, KEYS, NOW, grant, token_text
from trio_cogment.access import NEVER, Grant, Keys, Quotas, Role, Source, Token, unverified
from trio_cogment.base.errors import InvalidArgumentError, UnauthenticatedError

NAMES = st.text(st.characters(categories=["L", "N", "P"], exclude_characters="#"), min_size=1, max_size=20)
AMOUNTS = st.none() | st.integers(0, 2**63 - 1)
GRANTS = st.builds(
    Grant,
    name=NAMES,
    roles=st.frozensets(st.sampled_from(sorted(set(Role) - {Role.SEAT}, key=repr))),  # a seat's names are restricted
    trials=st.lists(NAMES, max_size=3).map(tuple),
    classes=st.lists(NAMES, max_size=3).map(tuple),
    actors=st.lists(NAMES, max_size=3).map(tuple),
    quotas=st.builds(Quotas, trials=AMOUNTS, stored_bytes=AMOUNTS, models=AMOUNTS),
    owner=st.just("") | NAMES.map("token:{}".format),
)
TOKENS = st.builds(
    Token,
    token_id=st.text("abc123", min_size=1, max_size=32),
    grant=GRANTS,
    expires_at=st.integers(0, 2**53 - 1),
)


@given(TOKENS)
def test_what_is_signed_comes_back(token: Token) -> None:
    text = KEYS.sign(token)
    assert KEYS.verify(text) == token == unverified(text)
    assert text.isascii()
    assert " " not in text


def test_tokens_are_written_as_ever() -> None:
    """A server takes those that another version has signed, with the same key."""
    grant_of_all = Grant(
        name="ann",
        roles=frozenset([Role.OPERATOR, Role.PARTICIPANT]),
        trials=("lab-*",),
        classes=("player",),
        actors=("=ann",),
        quotas=Quotas(trials=2, stored_bytes=0),
        owner="token:bob",
    )
    sources = (Source("t0", "eve", "3517aea8", 5),)
    tokens = {
        Token(token_id="t1", grant=grant_of_all, expires_at=NOW, sources=sources): (
            '{"i":"t1","n":"ann","e":1700000000,"r":["operator","participant"],"q":{"t":2,"b":0},"o":"token:bob",'
            '"d":[["t0","eve","3517aea8",5]],"t":["lab-*"],"c":["player"],"a":["=ann"]}',
            "RpWsMRz0WC9R6fOKnq-UlMB0ENJ5rzS_KIHimPHzfgY",
        ),
        Token(token_id="t2", grant=Grant(name="ann"), expires_at=NEVER): (
            '{"i":"t2","n":"ann","e":0}',
            "wYOh-PfrPogsuagn5fmMDekKx36MF6Ax__WJvFlQUrM",
        ),
    }
    for token, (claims, signature) in tokens.items():
        text = KEYS.sign(token)
        version, key_name, encoded, signed = text.split(".")
        assert base64.urlsafe_b64decode(encoded + "==").decode() == claims
        assert (version, key_name, signed) == ("tc1", "3517aea8", signature)
        assert KEYS.verify(text) == token


@given(TOKENS, st.data())
def test_no_changed_text_is_valid(token: Token, data: st.DataObject) -> None:
    text = KEYS.sign(token)
    position = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="latin-1").filter(lambda character: character != text[position]))
    for forged in (text[:position] + other + text[position + 1 :], text[:position], text + other):
        with pytest.raises(UnauthenticatedError, match=r"^the token is not valid here$"):
            KEYS.verify(forged)


@given(st.text(max_size=300))
def test_no_other_text_is_valid(text: str) -> None:
    with pytest.raises(UnauthenticatedError, match=r"^the token is not valid here$"):
        KEYS.verify(text)


def test_a_token_may_name_so_much() -> None:
    """What can be sent in one field of a request; not more."""

    def token(size: int) -> Token:
        return Token(token_id="t", grant=Grant(name="ann", trials=("x" * 120,) * size), expires_at=NEVER)

    long, longer = KEYS.sign(token(48)), KEYS.sign(token(50))
    assert 7500 < len(long) <= 8192 < len(longer)
    assert KEYS.verify(long) == token(48)
    with pytest.raises(UnauthenticatedError, match="not valid"):
        KEYS.verify(longer)


def test_another_platforms_token_is_not_valid_even_under_the_name_of_our_key() -> None:
    foreign = token_text(grant(Role.ADMIN), keys=FOREIGN)
    with pytest.raises(UnauthenticatedError, match="not valid"):
        KEYS.verify(foreign)
    ours = token_text(grant())
    renamed = foreign.replace(foreign.split(".")[1], ours.split(".")[1])
    with pytest.raises(UnauthenticatedError, match="not valid"):
        KEYS.verify(renamed)


def test_the_claims_of_one_do_not_go_with_the_signature_of_another() -> None:
    weak, strong = token_text(grant(Role.OBSERVER)), token_text(grant(Role.ADMIN))
    mixed = ".".join([*strong.split(".")[:3], weak.split(".")[3]])
    with pytest.raises(UnauthenticatedError, match="not valid"):
        KEYS.verify(mixed)


def test_keys_are_rotated() -> None:
    old = "11" * 32
    before = Keys.parse(old)
    text = token_text(grant(), keys=before)
    both = Keys.parse(f"# new\n{'22' * 32}\n\n# old\n{old}\n")
    assert both.verify(text) == before.verify(text)
    newer = token_text(grant(), keys=both)
    after = Keys.parse("22" * 32)
    assert after.verify(newer)
    for keys, left in ((before, newer), (after, text)):
        with pytest.raises(UnauthenticatedError):
            keys.verify(left)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "expected 1 to 16 keys, got 0"),
        ("# nothing\n", "expected 1 to 16 keys, got 0"),
        ("22" * 31, "expected 64 hexadecimal digits"),
        ("22" * 32 + "\n" + "22" * 31, "expected 64 hexadecimal digits"),
        ("22" * 32 + "\nsecret", "line 2: expected a key as hexadecimal digits"),
        ("\n".join(["22" * 32] * 17), "got 17"),
    ],
)
def test_a_secret_file_is_checked_and_not_repeated(content: str, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected) as caught:
        Keys.parse(content)
    assert "secret" not in str(caught.value)
    assert "2222" not in str(caught.value)


def test_keys_are_not_shown() -> None:
    assert bytes(range(32)).hex()[:16] not in repr(KEYS)
    assert "000102" not in repr(KEYS)


@pytest.mark.parametrize(
    "claims",
    [
        [],
        None,
        {},
        {"i": "a", "n": "b"},
        {"i": "a", "n": "b", "e": "soon"},
        {"i": "a", "n": "b", "e": True},
        {"i": "a", "n": "b", "e": -1},
        {"i": "a", "n": "b", "e": 2**53},
        {"i": "a", "n": "b", "e": 1, "r": ["god"]},
        {"i": "a", "n": "b", "e": 1, "r": [1]},
        {"i": "a", "n": "b", "e": 1, "t": "abc\x00"},
        {"i": "a", "n": "b", "e": 1, "q": {"z": 1}},
        {"i": "a", "n": "b", "e": 1, "q": {"t": -1}},
        {"i": "a", "n": "b", "e": 1, "q": {"t": True}},
        {"i": "a", "n": "b", "e": 1, "q": []},
        {"i": "a b", "n": "b", "e": 1},
        {"i": "a", "n": "", "e": 1},
    ],
)
def test_claims_that_no_token_of_ours_has_are_not_valid(claims: object) -> None:
    """Also with a good signature: a later version's, say."""
    good = token_text(grant()).split(".")
    body = ".".join([*good[:2], base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()])
    digest = hmac.digest(bytes(range(32)), b"token of trio-cogment\0" + body.encode(), "sha256")
    text = f"{body}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
    with pytest.raises(InvalidArgumentError):
        unverified(text)
    with pytest.raises(UnauthenticatedError, match=r"^the token is not valid here$"):
        KEYS.verify(text)


def test_what_is_no_token_is_not_shown() -> None:
    for text in ("", "abc", "tc2.a.b.c", "tc1.a.!.c", "tc1.a.b"):
        with pytest.raises(InvalidArgumentError):
            unverified(text)


def test_a_token_ends_when_it_says() -> None:
    token = Token(token_id="a", grant=grant(), expires_at=NOW)
    assert not token.expired(NOW - 0.001)
    assert token.expired(NOW)
    assert not Token(token_id="a", grant=grant(), expires_at=NEVER).expired(NOW * 10)


@pytest.mark.parametrize("token_id", ["", "a" * 33, "a b", "a.b", "ä"])
def test_ids_are_checked(token_id: str) -> None:
    with pytest.raises(InvalidArgumentError, match="token_id"):
        Token(token_id=token_id, grant=grant(), expires_at=1)
