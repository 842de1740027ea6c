"""Encoding and decoding of arrays, values and observations, beside the least that has to be done.

`python benchmarks/spaces.py` measures in alternated rounds; a ratio is the median over the rounds of our time divided
by that of the bare way in the same round:

* bare: `tobytes`, one message of the same fields, serialised and parsed, `frombuffer`;
* array: `encode_array`, serialised and parsed, `decode_array`;
* value: the same with `encode_value` and `decode_value`, which check the array against its space;
* observation: the array with reward, flags and an entry of information, checked likewise.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _report import number, print_json, print_table

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces import (
    Box,
    Observation,
    decode_array,
    decode_observation,
    decode_value,
    encode_array,
    encode_observation,
    encode_value,
)

#: Name, array, its space, and how often it goes both ways in a round.
CASES = [
    ("float32_4", np.linspace(-1, 1, 4, dtype=np.float32), Box(-1, 1, (4,)), 2000),
    ("uint8_84x84x4", np.full((84, 84, 4), 7, np.uint8), Box(0, 255, (84, 84, 4), "uint8"), 500),
    ("uint8_210x160x3", np.full((210, 160, 3), 7, np.uint8), Box(0, 255, (210, 160, 3), "uint8"), 200),
]
#: Microseconds for the array both ways that the project set itself, on its slow machine.
BARS = {"float32_4": 3.4, "uint8_210x160x3": 19.0}


def ways(array: np.ndarray[Any, Any], space: Box) -> dict[str, Callable[[], Any]]:
    number_of_type = encode_array(array).dtype
    observation = Observation(array, reward=1.0, info={"lives": 3})

    def bare() -> Any:
        message = pb.Array(dtype=number_of_type, shape=array.shape, raw_data=array.tobytes())
        found = pb.Array.FromString(message.SerializeToString())
        return np.frombuffer(found.raw_data, array.dtype).reshape(tuple(found.shape))

    def as_array() -> Any:
        return decode_array(pb.Array.FromString(encode_array(array).SerializeToString()))

    def as_value() -> Any:
        return decode_value(pb.Value.FromString(encode_value(array, space).SerializeToString()), space)

    def as_observation() -> Any:
        encoded = encode_observation(observation, space).SerializeToString()
        return decode_observation(pb.Observation.FromString(encoded), space).value

    return {"bare": bare, "array": as_array, "value": as_value, "observation": as_observation}


def measure(function: Callable[[], Any], times: int) -> float:
    """Return microseconds for each call."""
    began = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - began) / times * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=15, help="alternated rounds (default: 15)")
    arguments = parser.parse_args()
    rows = []
    figures: dict[str, float | None] = {}
    for name, array, space, times in CASES:
        functions = ways(array, space)
        assert all(np.array_equal(function(), array) for function in functions.values())
        found: dict[str, list[float]] = {way: [] for way in functions}
        for turn in range(arguments.rounds + 1):
            order = list(functions) if turn % 2 else list(functions)[::-1]
            taken = {way: measure(functions[way], times) for way in order}
            if turn:  # the first one warms up
                for way, microseconds in taken.items():
                    found[way].append(microseconds)
        for way, microseconds in found.items():
            ratio = statistics.median(ours / bare for ours, bare in zip(microseconds, found["bare"], strict=True))
            middle = statistics.median(microseconds)
            figures[f"{name}_{way}_us"] = middle
            if way != "bare":
                figures[f"{name}_{way}_over_bare"] = ratio
            bar = number(BARS[name]) if way == "array" and name in BARS else ""
            rows.append((name, way, number(middle), number(ratio), bar))
    print_table(("case", "way", "us both ways", "over bare", "bar (us)"), rows)
    if arguments.json:
        print_json(figures)


if __name__ == "__main__":
    main()
