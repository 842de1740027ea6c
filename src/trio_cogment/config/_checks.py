"""Checks that the settings classes share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

Range = tuple[float, float]

SIZE: Range = (1, 2**31 - 1)
SECONDS: Range = (0.001, 10.0**9)
SECONDS_OR_NEVER: Range = (0.0, 10.0**9)


def names_of(config: Any) -> list[str]:
    """Return the names of all fields of a settings object."""
    return [field.name for field in fields(config)]


def check_ranges(config: Any, ranges: Mapping[str, Range]) -> None:
    """Raise ValueError if a value is outside the range of its field; None is always allowed."""
    for name, (least, most) in ranges.items():
        value = getattr(config, name)
        if value is not None and not least <= value <= most:  # also refuses NaN
            raise ValueError(f"{name}: expected {least} to {most}, got {value}")


def check_not_negative(config: Any) -> None:
    """Raise ValueError if a value is negative, infinite or NaN; None is allowed."""
    for field in fields(config):
        value = getattr(config, field.name)
        if value is not None and not 0 <= value < math.inf:  # also refuses NaN
            raise ValueError(f"{field.name}: expected a number that is not negative, got {value}")


def check_positive(config: Any, *names: str) -> None:
    """Raise ValueError if one of these is 0."""
    for name in names:
        if not getattr(config, name):
            raise ValueError(f"{name}: expected more than 0")
