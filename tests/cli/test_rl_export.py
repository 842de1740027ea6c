"""`trio-cogment rl export`."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Output, run_here, server
from tests.rl.datasets.recorded import Duel, play, recording
from tests.rpc.tls_files import make_party
from trio_cogment.base.errors import install_command
from trio_cogment.cli.root import run


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
    assert "expected --parquet FOLDER, --minari ID, or --chat FOLDER" in capsys.readouterr().err
    assert run(["rl", "export", "sqlite:nothing.db", "--parquet", str(tmp_path / "data")]) == 1
    assert capsys.readouterr().err == "trio-cogment: source: there is no file 'nothing.db'\n"
    assert run(["rl", "export", address, "--parquet", str(tmp_path / "data"), "--trial", "three"]) == 1
    assert capsys.readouterr().err == "trio-cogment: trials: 'three': not in the datastore\n"


@pytest.mark.parametrize(
    ("source", "got"),
    [
        ("localhost:9000", "'localhost:9000'; did you mean 'grpc://localhost:9000'?"),
        ("trials.db", "'trials.db'; did you mean 'sqlite:trials.db'?"),
        ("grpcs://ann:secret@localhost:9000", "the scheme 'grpcs'"),
    ],
)
def test_a_source_that_is_no_address(source: str, got: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rl", "export", source, "--parquet", str(tmp_path / "data")]) == 1
    expected = "trio-cogment: source: expected 'sqlite:FILE' or 'grpc://host:port', got "
    assert capsys.readouterr().err == f"{expected}{got}\n"


PROJECT = """
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value
from trio_cogment import ActorClass, Spec

SPEC = Spec.of(ActorClass("player", observation=StringValue, action=UInt32Value))
"""


def test_the_types_of_a_module(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a project has its types in Python: nothing is compiled."""
    monkeypatch.chdir(tmp_path)
    Path("types_of_a_game.py").write_text(PROJECT)
    needed = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "grpc_tools" else needed(name))
    line = ["rl", "export", address, "--parquet", "data", "--overwrite", "--spec"]
    assert run([*line, "types_of_a_game:SPEC"]) == 0
    assert capsys.readouterr().out == "12 steps of 2 trials written: data\n"
    for given, why in (
        ("types_of_a_game:SPECK", "types_of_a_game:SPECK: module 'types_of_a_game' has no attribute 'SPECK'; did you"),
        ("types_of_a_game:ActorClass", "types_of_a_game:ActorClass: expected a Spec, got type"),
        ("no_such_game:SPEC", "there is no module 'no_such_game' in "),
    ):
        assert run([*line, given]) == 1
        assert capsys.readouterr().err.startswith(f"trio-cogment: --spec: {why}")


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


async def test_a_datastore_with_tls_and_tokens_is_asked_as_by_other_commands(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    party = make_party(tmp_path, "party", "localhost", "127.0.0.1")
    secret = ["--auth_secret_file=secret"]
    assert (await run_here("token", "init", *secret)).code == 0
    for name, role in (("reader", "observer"), ("nobody", "participant")):
        made = await run_here("token", "make", name, f"--role={role}", *secret, f"--file={name}.token")
        assert made.code == 0, made.err
    serve = ["services", "trial_datastore", "--host=127.0.0.1", "--port=0", f"--file_storage={tmp_path / 'trials.db'}"]
    own = [f"--private_key={party.key}", f"--trust_chain={party.chain}", "--auth=token", *secret]
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*serve, *own, folder=tmp_path) as running:
            source, trust = f"grpc://localhost:{running.port}", f"--root_cert={party.roots}"

            async def export(*flags: str) -> Output:
                return await run_here("rl", "export", source, "--parquet=data", "--overwrite", *flags)

            done = await export(trust, "--token_file=reader.token", "--json")
            assert done.code == 0, done.err
            assert json.loads(done.out)["trials"] == 2
            for flags, why in (
                ([trust], "UNAUTHENTICATED"),
                ([trust, "--token_file=nobody.token"], "PERMISSION_DENIED"),
                (["--token_file=reader.token"], "the server may speak TLS: --root_cert"),
            ):
                refused = await export(*flags)
                assert refused.code == 1
                assert why in refused.err


def test_a_source_that_is_an_address_without_a_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rl", "export", "grpc://localhost", "--parquet", str(tmp_path / "data")]) == 1
    assert "SOURCE: 'grpc://localhost': expected grpc://host:port" in capsys.readouterr().err
