"""JSON for pages and programs that read numbers as JavaScript does: each number arrives as what it is.

JavaScript has numbers of 64 bits with a fraction: integers beyond 2^53 are rounded (ECMAScript,
`Number.MAX_SAFE_INTEGER`), so they go as texts. A number of 32 bits with a fraction, as protobuf's `float`, is written
with the digits that tell it from others of 32 bits, not with those of the 64 bits in which Python holds it. What JSON
has no numbers for are texts, as in protobuf's JSON: participants may send any, and others want to see the rest.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Sequence
from typing import Any

MAX_SAFE_INTEGER = 2**53 - 1
_MAYBE_UNSAFE = re.compile(r"[0-9]{16}")
_FLOAT32 = struct.Struct("f")
#: Significant digits: this many are always kept, and this many always suffice (IEEE 754, binary32).
_FEWEST_DIGITS, _MOST_DIGITS = 6, 9
#: How much a mean of such numbers may be off, in parts of the largest one.
_ROUNDING = 1e-6
#: How much of the largest one is left where they cancel out, in 64 bits.
_NOTHING = 1e-12


def json_text(value: Any, *, long_texts: bool = False) -> str:
    """Return a value as JSON, as short as it can be.

    Args:
        value: see above.
        long_texts: it has few parts, and long texts among them, which need not be searched for what looks like numbers.
    """
    if long_texts:
        return _dumps(_with_texts(value))
    try:
        text = _dumps(value)
    except ValueError:  # it holds infinity or NaN
        return _dumps(_with_texts(value))
    return _dumps(_with_texts(value)) if _MAYBE_UNSAFE.search(text) else text


def name_of(value: float) -> str:
    """Return the text that stands for infinity or NaN."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _with_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_texts(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return name_of(value)
    return str(value) if isinstance(value, int) and abs(value) > MAX_SAFE_INTEGER else value


def shortest(value: float) -> float:
    """Return the number with the fewest digits that is the same one in 32 bits."""
    try:
        wanted = _FLOAT32.pack(value)
        for digits in range(_FEWEST_DIGITS, _MOST_DIGITS + 1):
            found = float(f"{value:.{digits}g}")
            if _FLOAT32.pack(found) == wanted:
                return found
    except OverflowError:  # it has more than 32 bits
        pass
    return value


def shortest_mean(value: float, parts: Sequence[tuple[float, float]]) -> float:
    """Return a mean that was computed in 32 bits as people would compute it from what they are shown.

    Args:
        value: the mean, with what rounding has left at its end: 0.10000001 of 0.3 and -0.1.
        parts: the numbers that it is of, and the weight of each.
    """
    weights = sum(weight for _, weight in parts)
    if len(parts) > 1 and weights > 0:
        mean = sum(shortest(part) * weight for part, weight in parts) / weights
        largest = max(abs(part) for part, _ in parts)
        if abs(mean - value) <= _ROUNDING * largest:
            # What adding in binary leaves where the parts cancel out is nothing.
            return float(f"{mean:.12g}") if abs(mean) > _NOTHING * largest else 0.0
    return shortest(value)
