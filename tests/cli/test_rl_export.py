"""`trio-cogment rl export`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import trio

from tests.rl.datasets.recorded import Duel, play, recording
from trio_cogment.cli.root import run
from trio_cogment.errors import install_command


@pytest.fixture
def address(tmp_path: Path) -> str:
    address, game = f"sqlite:{tmp_path / 'trials.db'}", Duel(3)

    async def record() -> None:
        async with recording(game, store=address) as platform:
            await play(platform, game, "one", properties={"group": "a"})
            await play(platform, game, "two")

    trio.run(record)
    return address


def test_a_folder_of_parquet_files(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "data"
    assert run(["rl", "export", address, "--parquet", str(target)]) == 0
    assert capsys.readouterr().out == f"12 steps of 2 trials written: {target}\n"
    assert run(["rl", "export", address, "--parquet", str(target)]) == 1
    assert f"{target} exists already" in capsys.readouterr().err
    options = ["--overwrite", "--properties", "group=a", "--json"]
    assert run(["rl", "export", address, "--parquet", str(target), *options]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 1
    assert pq.read_table(target / "meta/trials.parquet").column("trial_id").to_pylist() == ["one"]


def test_minari(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    assert run(["rl", "export", address, "--minari", "tests/duel-v0", "--trial", "two"]) == 0
    names = "tests/duel-v0, tests/duel-player_0-v0, tests/duel-player_1-v0"
    assert capsys.readouterr().out == f"6 steps of 1 trial written: {names}\n"


def test_what_is_wrong(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rl", "export", address]) == 1
    assert "expected --parquet FOLDER, or --minari ID" in capsys.readouterr().err
    assert run(["rl", "export", "sqlite:nothing.db", "--parquet", str(tmp_path / "data")]) == 1
    assert capsys.readouterr().err == "trio-cogment: source: there is no file 'nothing.db'\n"
    assert run(["rl", "export", address, "--parquet", str(tmp_path / "data"), "--trial", "three"]) == 1
    assert capsys.readouterr().err == "trio-cogment: trials: 'three': not in the datastore\n"


def test_the_group_names_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rl"]) == 0
    assert re.search("export +Write stored trials as a data set", capsys.readouterr().out)


def test_missing_extras_are_named_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name in {"pyarrow", "grpc_tools", "h5py"} else object()
    )
    spec = tmp_path / "cogment.yaml"
    spec.write_text("actor_classes: []")
    line = ["rl", "export", "sqlite:trials.db", "--parquet", str(tmp_path / "data")]
    assert run([*line, "--spec", str(spec)]) == 1
    install = install_command("export", "generate")
    assert capsys.readouterr().err == f"trio-cogment: not installed: pyarrow, grpc_tools; {install}\n"
    assert run([*line[:3], "--minari", "a/b-v0"]) == 1
    assert capsys.readouterr().err == f"trio-cogment: not installed: h5py; {install_command('minari')}\n"


def test_a_project_file_that_is_wrong(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "cogment.yaml"
    spec.write_text("actor_clases: []")
    assert run(["rl", "export", address, "--parquet", str(tmp_path / "data"), "--spec", str(spec)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"trio-cogment: --spec: {spec}: line 1: ")
    assert error.count("\n") == 1
