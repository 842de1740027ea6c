"""The list of limits and the settings: none is missing, and each limit for all leaves something for others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest
from tools.limits import PAGE, written

from trio_cogment import config
from trio_cogment.cli.configuration import SECTIONS
from trio_cogment.config.limits import LIMITS, OF_ONE
from trio_cogment.play import LobbyRules

CLASSES: dict[str, Any] = {**{name: getattr(config, kind) for name, kind in SECTIONS.items()}, "lobby": LobbyRules}
LISTED = {limit.setting for limit in LIMITS}
SHARES = {limit.share for limit in LIMITS if " " not in limit.share}


def numbers(section: str, kind: Any) -> Iterator[str]:
    """Yield the settings that are numbers of something: what is counted, or called a limit."""
    for field in fields(kind):
        if "int" in str(field.type) or field.name.startswith("max_"):
            yield f"{section}.{field.name}"


def unlisted(classes: dict[str, Any]) -> set[str]:
    """Return the settings of which the list says nothing."""
    settings = {setting for section, kind in classes.items() for setting in numbers(section, kind)}
    return settings - LISTED - SHARES - {setting for listed in OF_ONE.values() for setting in listed}


def value(setting: str) -> float:
    section, _, key = setting.partition(".")
    found: float = getattr(CLASSES[section](), key)
    return found


def test_every_limit_is_listed_with_its_share_or_with_the_one_thing_that_it_limits() -> None:
    assert unlisted(CLASSES) == set()


def test_a_new_limit_has_to_be_listed() -> None:
    @dataclass
    class Config:
        max_worlds: int = 1
        max_dreams: int = 7

    assert unlisted({"dm_env_rpc": Config}) == {"dm_env_rpc.max_dreams"}


def test_each_is_in_one_place_and_there() -> None:
    of_one = [setting for listed in OF_ONE.values() for setting in listed]
    assert len(LISTED) == len(LIMITS)
    assert len(set(of_one)) == len(of_one)
    assert LISTED.isdisjoint(of_one)
    assert LISTED.isdisjoint(SHARES)
    settings = {f"{section}.{field.name}" for section, kind in CLASSES.items() for field in fields(kind)}
    assert LISTED | SHARES | set(of_one) <= settings


@pytest.mark.parametrize("limit", [limit for limit in LIMITS if limit.share in SHARES], ids=lambda limit: limit.setting)
def test_one_account_gets_half_at_most(limit: Any) -> None:
    assert 0 < 2 * value(limit.share) <= value(limit.setting)


def test_the_page_is_as_the_tool_writes_it() -> None:
    page = PAGE.read_text()
    assert page == written(page), "run python tools/limits.py"
    assert all(f"| `{limit.setting}` |" in page for limit in LIMITS)


def test_a_page_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the lines"):
        written("# Limits\n")
