"""New ids of runs: ULIDs, which sort by the time at which they were made. Pure."""

from __future__ import annotations

#: Crockford's base 32: no I, L, O and U.
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 26
#: What a ULID has beside its time.
RANDOM_BYTES = 10


def new_ulid(wall_ns: int, random_bytes: bytes) -> str:
    """Return a ULID.

    Args:
        wall_ns: the time of the day in nanoseconds since the epoch.
        random_bytes: `RANDOM_BYTES` of them.
    """
    if len(random_bytes) != RANDOM_BYTES:
        raise ValueError(f"random_bytes: expected {RANDOM_BYTES} bytes, got {len(random_bytes)}")
    value = (wall_ns // 1_000_000 % (1 << 48)) << 80 | int.from_bytes(random_bytes, "big")
    return "".join(_DIGITS[value >> 5 * place & 31] for place in reversed(range(_LENGTH)))
