"""Durations as the reference writes them: `30s`, `1m30s`, `500ms`."""

from __future__ import annotations

import re

import click

_UNITS_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
#: The units are in an order in which no one hides a longer one.
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
#: About what the reference can hold.
_MOST_SECONDS = 2**63 / 1e9


def parse_duration(text: str) -> float:
    """Return the seconds that a duration of the reference (that is, of Go) says.

    Raises:
        ValueError: it is none, or below 0, or longer than 292 years.
    """
    digits = text.removeprefix("+")
    if digits == "0":
        return 0.0
    parts, end = [], 0
    for part in _PART.finditer(digits):
        if part.start() != end:
            break
        parts.append(float(part[1]) * _UNITS_SECONDS[part[2]])
        end = part.end()
    if not parts or end != len(digits) or sum(parts) > _MOST_SECONDS:
        raise ValueError(f"expected a duration such as 30s, 1m30s or 500ms, got {text!r}")
    return sum(parts)


def as_duration(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Return the seconds of a flag whose value has to be more than nothing."""
    try:
        seconds = parse_duration(value.strip())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not seconds:
        raise click.BadParameter(f"expected more than 0, got {value!r}")
    return seconds
