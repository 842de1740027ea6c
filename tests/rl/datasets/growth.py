"""Exports a file of trials; prints the samples, by how many MiB the process has grown at most, and the seconds."""

from __future__ import annotations

import resource
import sys
import time

import trio_cogment.rl.datasets.parquet
from trio_cogment.rl import export


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    assert trio_cogment.rl.datasets.parquet  # imported, and so no part of the growth
    before, begun = peak_mib(), time.perf_counter()
    done = export(sys.argv[1], parquet=sys.argv[2])
    print(done.samples, round(peak_mib() - before, 1), round(time.perf_counter() - begun, 1))


main()
