"""Folders of data sets of Minari that are being written: their names, and that they are let go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trio_cogment.base.host.beside import left_behind
from trio_cogment.rl.datasets import minari_files
from trio_cogment.rl.datasets.minari_files import DatasetFiles, _folder_of
from trio_cogment.spaces import Discrete


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("duel-v0", "duel-incomplete-4711-3-v0"),
        ("duel-very-v12", "duel-very-incomplete-4711-3-v12"),
        ("a-v1-v2", "a-v1-incomplete-4711-3-v2"),
    ],
)
def test_the_folder_that_minari_writes(name: str, folder: str) -> None:
    target = Path("/data") / name
    assert _folder_of(target, f"/data/.{name}.4711.3.tmp") == Path("/data") / folder


def test_what_is_not_complete_is_removed_and_nobody_writes_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minari_files, "path_of", lambda dataset_id: tmp_path / dataset_id)
    minari: Any = None
    spaces = (Discrete(2), Discrete(2))
    files = DatasetFiles(minari, "lab/duel-v0", spaces, {}, {})
    assert files.target == tmp_path / "lab" / "duel-v0"
    assert files._incomplete == f"lab/{files.temporary.name}"
    claim = files._claim
    assert Path(claim).is_dir()
    with left_behind(claim) as nobodys:
        assert not nobodys
    files.temporary.mkdir()
    files.close()
    assert not Path(claim).exists()
    assert not files.temporary.exists()
    Path(claim).mkdir()
    with left_behind(claim) as nobodys:
        assert nobodys
    assert DatasetFiles(minari, "duel-v0", spaces, {}, {})._incomplete.startswith("duel-incomplete-")
