"""Declarations of settings: the default of each, its range, what it means, its flag, and what it limits.

A settings class is a record whose fields are made by `setting`. The checks of its values, the keys of the file of
`--config`, the flags with their help, and the tables of `docs/configuration.md` and `docs/limits.md` come from there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

_Value = TypeVar("_Value")

#: The least value, and the largest; infinity itself is never one.
Range = tuple[float, float]

SIZE: Range = (1, 2**31 - 1)
LARGE: Range = (1, 2**62)
SECONDS: Range = (0.001, 10.0**9)
SECONDS_OR_NEVER: Range = (0.0, 10.0**9)
MINUTE: Range = (0.001, 60.0)
MINUTE_OR_NONE: Range = (0.0, 60.0)
NOT_NEGATIVE: Range = (0, math.inf)
POSITIVE: Range = (math.ulp(0.0), math.inf)

# Texts that several limits share.
STARTER = "whoever has started the trial; a lobby's trials: the lobby"
ENDED = "the end of the trial: its participants have gone, its times are over, or a lobby's people have left"
PEER = "the caller"
CALLER = "the caller, unless it is a program of this machine without a token"
CLOSED = "the end of the connection: when it is closed, silent for too long, or its token is revoked"
LOAN = "a ninth of what is free, whatever the others have"
TURNS = "others wait, and go in turn"

# A server makes a few hundred declarations when it starts, so the next three classes are plain ones: a dataclass takes
# half a millisecond to be compiled, and a record several times as long as these to be filled.


class Flag:
    """The flag of a setting.

    Attributes:
        name: with its dashes.
        variable: its environment variable; empty: it has none.
        metavar: stands for the value in the help; empty: NUMBER, or what its type has.
        choices: the words that it takes, with the values that they mean; None: it takes the values themselves.
        text: its help, where that is not the text of the setting with its default.
    """

    __slots__ = ("choices", "metavar", "name", "text", "variable")

    def __init__(
        self,
        name: str,
        variable: str = "",
        *,
        metavar: str = "",
        choices: Mapping[str, Any] | None = None,
        text: str = "",
    ) -> None:
        self.name = name
        self.variable = variable
        self.metavar = metavar
        self.choices = choices
        self.text = text


class Shared:
    """How callers share a limit that they all meet together.

    A limit for all alone is one that the first who comes takes from all others. So whoever adds one declares which part
    of it one account may have, whose it counts as, and what gives it back.

    Attributes:
        what: is limited.
        share: the setting of what one account may have, of the same section or with its section before a point; or in
            words what keeps one account from having all of it.
        owner: whose account it counts for.
        freed: what gives it back.
    """

    __slots__ = ("freed", "owner", "share", "what")

    def __init__(self, what: str, share: str, owner: str, freed: str) -> None:
        self.what = what
        self.share = share
        self.owner = owner
        self.freed = freed


class Setting:
    """The declaration of a setting.

    Attributes:
        text: what it means, as it goes on after its name: without a capital letter and a full stop.
        within: its range; None: it has none.
        flag: of the commands that have one for it.
        of: the one thing that it limits, for a limit; `process`: what a server does of its own.
        shared: how callers share it, for a limit that they meet together.
    """

    __slots__ = ("flag", "of", "shared", "text", "within")

    def __init__(self, text: str, within: Range | None, flag: Flag | None, of: str, shared: Shared | None) -> None:
        self.text = text
        self.within = within
        self.flag = flag
        self.of = of
        self.shared = shared


#: Of settings that say nothing else, by the type of their default: counts and sizes, and times.
_RANGES: Mapping[type, Range] = {int: SIZE, float: SECONDS}


def setting(
    default: _Value,
    text: str,
    *,
    within: Range | None = None,
    flag: Flag | None = None,
    of: str = "",
    shared: Shared | None = None,
) -> _Value:
    """Return the field of a settings class for a setting, with its default and the attributes of a `Setting`.

    Unless it says otherwise, an integer is within `SIZE`, and a float within `SECONDS`.
    """
    declared = Setting(text, within or _RANGES.get(type(default)), flag, of, shared)
    made: Any = field(default=default, metadata={"setting": declared})
    value: _Value = made  # as the class has it for type checkers; its instances do have it
    return value


class Settings:
    """The base of settings classes, which checks their values.

    Raises:
        ValueError: a value is outside its range.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        check_settings(self)


def settings_of(kind: Any) -> dict[str, Setting]:
    """Return the declarations of a settings class, by the names of its settings."""
    return {each.name: each.metadata["setting"] for each in fields(kind) if "setting" in each.metadata}


def check_settings(config: Any) -> None:
    """Raise ValueError if a value is outside its range. None is allowed only where it is the default."""
    for each in fields(config):
        value = getattr(config, each.name)
        if value is each.default:  # as most are; a test holds defaults against their ranges
            continue
        within = each.metadata["setting"].within
        if within is not None and (fault := _fault(value, *within)):
            raise ValueError(f"{each.name}: {fault}")


def _fault(value: float | None, least: float, most: float) -> str:
    if most == math.inf:
        if value is None or not 0 <= value < math.inf:  # also refuses NaN
            return f"expected a number that is not negative, got {value}"
        return "" if value >= least else "expected more than 0"
    if value is None or not least <= value <= most:
        return f"expected {least} to {most}, got {value}"
    return ""
