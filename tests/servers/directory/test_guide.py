"""The program of the guide."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import trio

from trio_cogment.servers.discovery import open_directory

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "directory.md"


async def test_the_program_of_the_guide(tmp_path: Path) -> None:
    [block] = GUIDE.read_text().split("```python\n")[1:]
    names: dict[str, Any] = {}
    exec(block.split("```")[0], names)
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(partial(names["serve_a_directory"], str(tmp_path / "state"), 0))
        async with open_directory(f"grpc://127.0.0.1:{serving.ports[0]}") as client:
            assert (await client.status(["nb_entries"])) == {"nb_entries": "0"}
        nursery.cancel_scope.cancel()
    assert (tmp_path / "state").exists()


def test_the_guide_names_tests_that_are_there() -> None:
    text = GUIDE.read_text()
    for name in {word for line in text.splitlines() for word in line.split("`") if word.startswith("test_")}:
        assert (Path(__file__).parent / name).exists()
