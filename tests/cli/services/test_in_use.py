"""A server whose files another one uses ends before it is announced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.process import run
from trio_cogment.host.files import SystemFiles

HERE = "--host=127.0.0.1"


@pytest.mark.parametrize(
    ("arguments", "lock", "text"),
    [
        (("services", "directory", "--persistence_file=c"), "c.lock", "persistence file"),
        (("services", "trial_datastore", "--file_storage=a.db"), "a.db.lock", "another datastore"),
        (("services", "model_registry", "--archive_dir=a"), "a/.lock", "another model registry"),
        (("serve", "--storage=sqlite:a.db"), "a.db.lock", "another datastore"),
        (("serve", "--archive_dir=a", "--storage=none"), "a/.lock", "another model registry"),
        (("serve", "--persistence_file=b"), "b.lock", "another directory"),
    ],
)
async def test_it_is_not_announced(tmp_path: Path, arguments: tuple[str, ...], lock: str, text: str) -> None:
    (tmp_path / "a").mkdir()
    held = SystemFiles().lock(str(tmp_path / lock))
    try:
        output = await run(*arguments, HERE, "--port=0", folder=tmp_path)
    finally:
        held.release()
    assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
    assert text in output.err
