"""Runs every check on what fuzzing has found: `python -m tests.fuzz.replay FOLDER`, for coverage to watch."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main() -> None:
    for program in sorted(Path(sys.argv[1]).iterdir()):
        check = importlib.import_module(f"tests.fuzz.{program.name}").check
        for data in sorted(program.iterdir()):
            check(data.read_bytes())


if __name__ == "__main__":
    main()
