"""The declarations of settings: defaults, ranges, and shares of limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest
from tools.tables import CLASSES, share_of

from trio_cogment.base.config.declarations import (
    NOT_NEGATIVE,
    POSITIVE,
    Setting,
    Settings,
    Shared,
    setting,
    settings_of,
)
from trio_cogment.base.records import record

ALL = [(section, name, kind) for section, kind in CLASSES.items() for name in settings_of(kind)]


@pytest.mark.parametrize("section", CLASSES)
def test_every_field_is_declared(section: str) -> None:
    kind = CLASSES[section]
    assert list(settings_of(kind)) == [field.name for field in fields(kind)]
    for name, declared in settings_of(kind).items():
        assert not declared.text.endswith("."), name
        assert "|" not in declared.text, name


def has_range(section: str, name: str, kind: Any) -> bool:
    return section != "lobby" and settings_of(kind)[name].within is not None


WITH_RANGE = [
    pytest.param(kind, name, id=f"{section}.{name}") for section, name, kind in ALL if has_range(section, name, kind)
]


@pytest.mark.parametrize(("kind", "name"), WITH_RANGE)
def test_a_setting_takes_its_default_and_its_whole_range_and_nothing_beside_it(kind: Any, name: str) -> None:
    least, most = settings_of(kind)[name].within or (0, 0)
    default = getattr(kind(), name)
    assert default is None or (least <= default <= most and math.isfinite(default))
    inside = [bound for bound in (least, most) if math.isfinite(bound)]
    value: float | None
    # Two settings of a worker's credits are in an order besides.
    for value in [] if name in ("credit_low", "credit_high") else inside:
        assert getattr(kind(**{name: value}), name) == value
    outside = [math.nan, math.inf, -math.inf, -1, *([least - 1, most + 1] if math.isfinite(most) else [])]
    for value in [*outside, *([] if default is None else [None])]:
        with pytest.raises(ValueError, match=f"^{name}: expected .*, got {value}"):
            kind(**{name: value})


@record(kw_only=True)
class Config(Settings):
    count: int = setting(3, "how many")
    rest_seconds: float = setting(1.0, "how long", within=NOT_NEGATIVE)
    room: int = setting(1, "for so many", within=POSITIVE)
    limit: int | None = setting(None, "the most; by default there is none", within=(1, 9))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"count": 0}, "count: expected 1 to 2147483647, got 0"),
        ({"rest_seconds": -1}, "rest_seconds: expected a number that is not negative, got -1"),
        ({"room": 0}, "room: expected more than 0"),
        ({"room": -2}, "room: expected a number that is not negative, got -2"),
        ({"limit": 10}, "limit: expected 1 to 9, got 10"),
        ({"count": None}, "count: expected 1 to 2147483647, got None"),
    ],
)
def test_what_is_said_of_a_value_outside(value: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        Config(**value)


def test_a_setting_may_be_none_where_it_is_by_default() -> None:
    assert Config(limit=None) == Config()


# Limits


def numbers(kind: Any) -> Iterator[tuple[str, Setting]]:
    """Yield the settings that are numbers of something: what is counted, or called a limit."""
    for field in fields(kind):
        if "int" in str(field.type) or field.name.startswith("max_"):
            yield field.name, field.metadata["setting"]


def shares(classes: dict[str, Any]) -> dict[str, str]:
    """Return the limits that callers meet together, each with what one account has of it."""
    return {
        f"{section}.{name}": share_of(section, declared)
        for section, kind in classes.items()
        for name, declared in settings_of(kind).items()
        if declared.shared is not None
    }


def unlisted(classes: dict[str, Any]) -> set[str]:
    """Return the limits of which nothing says how they are shared, or of which one thing they are."""
    all_shares = set(shares(classes).values())
    return {
        f"{section}.{name}"
        for section, kind in classes.items()
        for name, declared in numbers(kind)
        if not declared.of and declared.shared is None and f"{section}.{name}" not in all_shares
    }


def test_every_limit_is_declared_with_its_share_or_with_the_one_thing_that_it_limits() -> None:
    assert unlisted(dict(CLASSES)) == set()


def test_a_new_limit_has_to_say_so() -> None:
    @dataclass
    class Config:
        max_worlds: int = setting(3, "worlds", shared=Shared("worlds", "max_peer_worlds", "one", "its end"))
        max_peer_worlds: int = setting(1, "of them")
        max_dreams: int = setting(7, "dreams")
        max_depth: int = setting(7, "of one", of="dream")

    assert unlisted({"dm_env_rpc": Config}) == {"dm_env_rpc.max_dreams"}


def test_a_limit_is_one_thing() -> None:
    all_shares = set(shares(dict(CLASSES)).values())
    for section, name, kind in ALL:
        declared = settings_of(kind)[name]
        said = [bool(declared.of), declared.shared is not None, f"{section}.{name}" in all_shares]
        assert sum(said) <= 1, f"{section}.{name}"


SETTINGS = [pytest.param(*pair, id=pair[0]) for pair in shares(dict(CLASSES)).items() if " " not in pair[1]]


@pytest.mark.parametrize(("limit", "share"), SETTINGS)
def test_one_account_gets_half_at_most(limit: str, share: str) -> None:
    def default(setting: str) -> float:
        section, _, key = setting.partition(".")
        found: float = getattr(CLASSES[section](), key)
        return found

    assert 0 < 2 * default(share) <= default(limit)
