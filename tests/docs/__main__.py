"""Run pages as they are written, with the ports that they name: `python -m tests.docs --programs BIN README.md ...`.

Pages that are given together share a folder and what serves in it, in their order.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import trio

from tests.docs.blocks import blocks_of, steps_of
from tests.docs.running import Runner


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.docs", description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument(
        "--programs",
        type=Path,
        default=Path(sys.executable).parent,
        help="the folder of python and trio-cogment",
    )
    options = parser.parse_args()
    blocks = [block for page in options.pages for block in blocks_of(str(page), page.read_text(encoding="utf-8"))]
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder), options.programs.absolute(), tell=lambda line: print(line, flush=True))
        trio.run(runner.run, steps_of(blocks))


if __name__ == "__main__":
    main()
