"""Registering, deregistering and matching, against a model that is too simple to be wrong."""

from __future__ import annotations

import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, ResourceExhaustedError
from trio_cogment.servers.directory import Inquiry, Service
from trio_cogment.servers.directory._entries import SALT_BYTES, Entries, Entry, Hasher

CONFIG = DirectoryServerConfig()
HASHER = Hasher(bytes(SALT_BYTES))
MINE, THEIRS = HASHER.digest("mine"), HASHER.digest("")


def entry(
    number: int,
    properties: dict[str, str] | None = None,
    *,
    permanent: bool = False,
    token: bytes = MINE,
    kind: int = 4,
    secret: str = "s",
    owner: str = "",
    **service: Any,
) -> Entry:
    given = {"protocol": 1, "host": f"host-{number}", "port": 9000, **service}
    return Entry(
        service_id=number,
        service=Service(kind=kind, properties=properties or {}, **given),
        permanent=permanent,
        token=token,
        secret=HASHER.digest(secret),
        owner=owner,
    )


def ids(entries: Any) -> list[int]:
    return [one.service_id for one in entries]


def test_what_is_kept_of_texts() -> None:
    assert HASHER.digest("a") == Hasher(bytes(SALT_BYTES)).digest("a") != HASHER.digest("b")
    assert HASHER.digest("a") != Hasher(b"1" * SALT_BYTES).digest("a")
    assert len(HASHER.digest("")) == len(HASHER.digest("x" * 1000)) == 32
    assert "mine" not in repr(entry(1))
    assert MINE.hex() not in repr(entry(1))


def test_the_newest_first_of_the_same_token_only() -> None:
    entries = Entries([entry(1), entry(2, {"a": "1"}), entry(3, token=THEIRS), entry(4, kind=3)])
    assert ids(entries.matching(Inquiry(), MINE)) == [4, 2, 1]
    assert ids(entries.matching(Inquiry(kind=4), MINE)) == [2, 1]
    assert ids(entries.matching(Inquiry(properties={"a": "1"}), MINE)) == [2]
    assert ids(entries.matching(Inquiry(), THEIRS)) == [3]
    assert ids(entries.matching(Inquiry(service_id=3), THEIRS)) == [3]
    assert not entries.matching(Inquiry(service_id=3), MINE)
    assert not entries.matching(Inquiry(service_id=0), MINE)


def test_duplicates_that_are_not_permanent_are_as_many_registrations() -> None:
    entries = Entries()
    for number in (1, 2):
        entries.register(entry(number, host="same"), CONFIG)
    assert ids(entries.matching(Inquiry(), MINE)) == [2, 1]


def test_of_too_many_duplicates_the_oldest_go() -> None:
    config = DirectoryServerConfig(max_duplicates=2, max_entries=6)
    others = [entry(1, host="same", permanent=True), entry(2, host="same", token=THEIRS), entry(3, host="same", port=1)]
    entries = Entries([*others, entry(4, {"a": "1"}, host="same")])
    for number in range(5, 10):
        entries.register(entry(number, host="same"), config)
    assert ids(entries) == [1, 2, 3, 4, 8, 9]
    assert entries.total_bytes == 6 * 4 + 2


def test_a_permanent_one_replaces_those_like_it() -> None:
    """Only permanent ones, of the same token and type, that have all of its properties."""
    entries = Entries(
        [
            entry(1, {"a": "1"}, permanent=True),
            entry(2, {"a": "1"}),
            entry(3, {"a": "1", "b": "2"}, permanent=True),
            entry(4, {"a": "2"}, permanent=True),
            entry(5, {"a": "1"}, permanent=True, token=THEIRS),
            entry(6, {"a": "1"}, permanent=True, kind=3),
            entry(7, {"b": "2"}, permanent=True),
        ]
    )
    result = entries.register(entry(8, {"a": "1"}, permanent=True, secret="new"), CONFIG)
    assert ids(entries) == [2, 3, 4, 5, 6, 7]  # it has the place and the number of the newest
    assert result == entries.get(3)
    assert result.service == entry(8, {"a": "1"}).service
    with pytest.raises(FailedPreconditionError):
        entries.deregister(3, MINE, HASHER.digest("s"))
    entries.deregister(3, MINE, HASHER.digest("new"))
    assert ids(entries) == [2, 4, 5, 6, 7]


def test_one_that_is_not_permanent_replaces_nothing() -> None:
    entries = Entries([entry(1, permanent=True)])
    entries.register(entry(2), CONFIG)
    assert ids(entries) == [1, 2]


@pytest.mark.parametrize(
    ("service_id", "token", "secret"),
    [(2, "mine", "s"), (1, "", "s"), (1, "mine", "t"), (1, "mine", ""), (0, "mine", "s"), (2**64 - 1, "mine", "s")],
)
def test_only_who_knows_everything_may_deregister(service_id: int, token: str, secret: str) -> None:
    entries = Entries([entry(1)])
    with pytest.raises(FailedPreconditionError) as caught:
        entries.deregister(service_id, HASHER.digest(token), HASHER.digest(secret))
    assert str(caught.value) == (
        f"service_id: no service {service_id} is registered with this secret and authentication token"
    )
    assert ids(entries) == [1]
    entries.deregister(1, MINE, HASHER.digest("s"))
    assert not ids(entries)
    assert not entries.total_bytes


def test_a_permanent_one_of_somebody_else_is_not_replaced() -> None:
    entries = Entries([entry(1, permanent=True, owner="ann"), entry(2, permanent=True)])
    entries.register(entry(3, permanent=True, owner="eve", secret="eve"), CONFIG)
    assert ids(entries) == [1, 2, 3]
    entries.deregister(3, MINE, HASHER.digest("eve"))
    assert ids(entries.matching(Inquiry(), MINE)) == [1, 2]
    assert entries.register(entry(4, permanent=True, owner="ann"), CONFIG).service_id == 1
    # What was there before there were owners, for who may have been its owner.
    assert entries.register(entry(5, permanent=True, owner="ann"), CONFIG, adopts=True).service_id == 1
    assert ids(entries) == [1]


def test_equal_ones_of_somebody_else_push_nothing_out() -> None:
    config = DirectoryServerConfig(max_duplicates=2)
    entries = Entries([entry(1, host="same", owner="ann")])
    for number in range(2, 9):
        entries.register(entry(number, host="same", owner="eve"), config)
    assert ids(entries) == [1, 7, 8]


def test_who_was_there_first_is_found_first_and_who_asks_before_all() -> None:
    owners = ["ann", "eve", "eve", "ann", "bob", "eve"]
    entries = Entries([entry(number, owner=owner) for number, owner in enumerate(owners, 1)])
    assert ids(entries.matching(Inquiry(), MINE)) == [4, 1, 6, 3, 2, 5]
    assert ids(entries.matching(Inquiry(), MINE, "carl")) == [4, 1, 6, 3, 2, 5]
    assert ids(entries.matching(Inquiry(), MINE, "bob")) == [5, 4, 1, 6, 3, 2]


def test_one_owner_cannot_take_all_the_room() -> None:
    config = DirectoryServerConfig(max_entries=6, max_owner_entries=2, max_owner_bytes=100)
    entries = Entries([entry(1, owner="ann")])
    entries.register(entry(2, owner="eve"), config)
    entries.register(entry(3, owner="eve", permanent=True), config)
    for permanent in (False, True):
        with pytest.raises(ResourceExhaustedError, match="max_owner_entries: you have 2 registrations"):
            entries.register(entry(4, {"a": "1"}, owner="eve", permanent=permanent), config)
    entries.register(entry(4, owner="eve", permanent=True), config)  # it takes the place of its own
    entries.register(entry(5, owner="ann"), config)
    assert ids(entries) == [1, 2, 3, 5]
    entries.remove(5)
    with pytest.raises(ResourceExhaustedError, match="max_owner_bytes: you have 6 bytes of registrations"):
        entries.register(entry(6, {"a": "x" * 100}, owner="ann"), config)


def test_an_owner_has_so_many_registrations_though_it_is_alone() -> None:
    config = DirectoryServerConfig(max_owner_entries=2)
    entries = Entries()
    for number in (1, 2):
        entries.register(entry(number, owner="ann"), config)
    with pytest.raises(ResourceExhaustedError, match="max_owner_entries: you have 2 registrations"):
        entries.register(entry(3, owner="ann"), config)
    entries.register(entry(3, owner="bob"), config)


def test_a_permanent_one_replaces_all_that_it_would_be_found_for() -> None:
    entries = Entries(entry(number, {"a": f"{number}"}, permanent=True) for number in (1, 2, 3, 4))
    kept = entries.register(entry(9, permanent=True), CONFIG)
    assert (kept.service_id, ids(entries)) == (4, [4])
    assert entries.total_bytes == kept.service.size


def test_an_owner_has_so_many_bytes_however_few_there_are() -> None:
    config = DirectoryServerConfig(max_owner_entries=10, max_owner_bytes=100)
    entries = Entries()
    with pytest.raises(ResourceExhaustedError, match="max_owner_bytes: you have 0 bytes of registrations; no room"):
        entries.register(entry(1, {"a": "x" * 94}, owner="ann"), config)
    entries.register(entry(1, {"a": "x" * 93}, owner="ann"), config)
    assert entries.total_bytes == 100
    with pytest.raises(ResourceExhaustedError, match="max_owner_bytes: you have 100 bytes"):
        entries.register(entry(2, owner="ann"), config)
    entries.register(entry(2, {"a": "x" * 93}, owner="bob"), config)


def test_what_a_registration_is_shown_as_has_nothing_secret() -> None:
    text = repr(entry(1))
    assert repr(MINE) not in text
    assert repr(HASHER.digest("s")) not in text
    assert "host-1" in text


def test_digests_are_what_earlier_files_have() -> None:
    assert HASHER.digest("mine") == hmac.digest(bytes(SALT_BYTES), b"mine", "sha256")


def test_limits() -> None:
    config = DirectoryServerConfig(max_entries=2, max_total_bytes=100)
    entries = Entries([entry(1, permanent=True), entry(2)])
    with pytest.raises(ResourceExhaustedError, match="the directory has 2 registrations and takes no more"):
        entries.register(entry(3, {"a": "1"}), config)
    entries.register(entry(3, permanent=True), config)  # that takes a place of its own
    entries.remove(2)
    with pytest.raises(ResourceExhaustedError, match="the directory has 6 bytes of registrations; no room"):
        entries.register(entry(4, {"a": "x" * 100}), config)
    assert ids(entries) == [1]
    assert entries.total_bytes == 6


TEXTS = st.sampled_from(["", "1", "2"])
PROPERTIES = st.dictionaries(st.sampled_from("ab"), TEXTS, max_size=2)
TOKENS = st.sampled_from([MINE, THEIRS])
STEPS = st.one_of(
    st.tuples(st.just("register"), PROPERTIES, TOKENS, st.booleans(), st.sampled_from([3, 4])),
    st.tuples(st.just("deregister"), st.integers(1, 12), TOKENS, st.sampled_from(["s1", "s2", "s3"])),
    st.tuples(st.just("inquire"), PROPERTIES, TOKENS, st.sampled_from([0, 3, 4])),
)


@given(st.lists(STEPS, max_size=30))
def test_it_is_what_a_list_would_be(steps: list[Any]) -> None:
    config = DirectoryServerConfig(max_entries=5, max_duplicates=2)
    entries, model = Entries(), list[Entry]()
    for number, (what, *rest) in enumerate(steps, 1):
        draft = entries.copy()
        if what == "inquire":
            properties, token, kind = rest
            expected = [
                one.service_id
                for one in model[::-1]
                if one.token == token
                and kind in (0, one.service.kind)
                and all(one.service.properties.get(name) == value for name, value in properties.items())
            ]
            assert ids(entries.matching(Inquiry(kind=kind, properties=properties), token)) == expected
            continue
        try:
            if what == "register":
                properties, token, permanent, kind = rest
                new = entry(
                    number, properties, token=token, permanent=permanent, kind=kind, secret=f"s{number % 3}", host="h"
                )
                registered = draft.register(new, config)
                old = [
                    one
                    for one in model[::-1]
                    if permanent
                    and one.permanent
                    and (one.token, one.service.kind) == (token, kind)
                    and properties.items() <= one.service.properties.items()
                ]
                if old:
                    model[model.index(old[0])] = registered
                    model = [one for one in model if one not in old[1:]]
                else:
                    same = [one for one in model if (one.token, one.service) == (token, new.service)]
                    mortal = [one for one in same if not one.permanent]
                    if not permanent and len(mortal) == 2:
                        model.remove(mortal[0])
                    model.append(registered)
            else:
                service_id, token, secret = rest
                draft.deregister(service_id, token, HASHER.digest(secret))
                [gone] = [one for one in model if one.service_id == service_id]
                assert (gone.token, gone.secret) == (token, HASHER.digest(secret))
                model.remove(gone)
        except CogmentError:
            assert list(draft) == list(entries)  # a refusal changes nothing
        entries = draft
        assert list(entries) == model
        assert len(entries) == len(model) <= 5
        assert entries.total_bytes == sum(one.service.size for one in model)
