"""The guide's programs run as they are printed, and its numbers are the code's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import trio

from trio_cogment.servers.model_registry import _archive_layout as layout
from trio_cogment.servers.model_registry._service import MAX_NAMED

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "model-registry.md"


async def test_the_programs(tmp_path: Path, capsys: Any) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == 2
    names: dict[str, Any] = {}
    for program in programs:
        exec(compile(program, str(GUIDE), "exec"), names)
    (tmp_path / "weights.npz").write_bytes(b"w" * 3_000_000)
    with trio.move_on_after(20) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(names["main"], tmp_path)
            while "now playing with" not in capsys.readouterr().out:  # noqa: ASYNC110  printing is all that it does
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert (tmp_path / "copy.npz").read_bytes() == b"w" * 3_000_000
    assert layout.data_name("walker", 2) in {path.name for path in (tmp_path / "archive" / "walker").iterdir()}


def test_figures() -> None:
    text = GUIDE.read_text()
    assert f"{MAX_NAMED:,} models" in text
    assert f"longer than {layout.MAX_FOLDER_BYTES} bytes" in text
    for model_id in ("walker", "a/b"):
        assert layout.model_name(layout.folder_of(model_id)) in text
    for name in (layout.info_name("walker", 1), layout.data_name("walker", 1), layout.last_name("walker")):
        assert name in text
    assert layout.deleted_name("walker") in text
    folder = Path(__file__).parent
    for name in re.findall(r"`(?:tests/servers/model_registry/)?(test_\w+\.py)`", text):
        assert (folder / name).exists()
