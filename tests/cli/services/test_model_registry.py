"""A model registry as a server process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.client.test_model_registry import DATA, asked, piped
from tests.cli.process import (
    run,
    run_here,
    server,
)
from tests.cli.test_configuration import settings_of
from trio_cogment.cli.services.model_registry import ModelRegistrySettings, model_registry


async def test_a_process_archives_where_it_is_told_and_is_alone_there(tmp_path: Path) -> None:
    """With the reference's variables and the service's second name; the folder is made."""
    archive = tmp_path / "new" / "folder"
    variables = {
        "COGMENT_MODEL_REGISTRY_PORT": "0",
        "COGMENT_MODEL_REGISTRY_ARCHIVE_DIR": str(archive),
        "COGMENT_MODEL_REGISTRY_SENT_MODEL_VERSION_DATA_CHUNK_SIZE": "1000",
    }
    start = ("services", "registry", "--host=127.0.0.1")
    async with server(*start, variables=variables) as found:
        assert found.addresses[0][2] == "ModelRegistrySP"
        endpoint = f"--endpoint=grpc://127.0.0.1:{found.port}"
        await asked("put", endpoint, "m", data=DATA)
        assert await asked("get", endpoint, "m") == DATA.decode()
        # Nobody reads all of it: that is not a reason for more than an exit code.
        output = await piped(f"get m {endpoint}", "head -c 8")
        assert (output.code, output.out, output.err) == (1, "weights ", "")
        output = await run(*start, "--port=0", f"--archive_dir={archive}")
        assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
        who = f"the archive is in use by another model registry (process {found.process.pid})"
        assert output.err == f"trio-cogment: --archive_dir: {archive}: {who}\n"
        assert await found.stop() == 0
        assert found.process.returncode == 0, found.err
    async with server(*start, variables=variables) as found:
        endpoint = f"--endpoint=grpc://127.0.0.1:{found.port}"
        assert await asked("get", endpoint, "m") == DATA.decode()
    (tmp_path / "file").write_text("no folder")
    output = await run(*start, "--port=0", f"--archive_dir={tmp_path}/file")
    assert (output.code, output.err.count("\n")) == (1, 1)
    assert f"--archive_dir: {tmp_path}/file" in output.err


def settings(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> ModelRegistrySettings:
    found = settings_of(monkeypatch, "run_model_registry", model_registry, *arguments)
    assert isinstance(found, ModelRegistrySettings)
    return found


def test_flags_win_over_the_file_and_the_defaults_are_those_of_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = settings(monkeypatch)
    assert (found.port, found.archive) == (9002, Path(".cogment/model_registry"))
    config = found.configuration.model_registry
    assert (config.cache_max_items, config.sent_version_chunk_bytes) == (100, 2097152)
    file = tmp_path / "config.yaml"
    file.write_text("archive_dir: /a\nmodel_registry: {cache_max_items: 7, max_uploads: 3}\n")
    found = settings(monkeypatch, f"--config={file}")
    config = found.configuration.model_registry
    assert (found.archive, config.cache_max_items, config.max_uploads) == (Path("/a"), 7, 3)
    config = settings(monkeypatch, f"--config={file}", "--cache_max_items=8").configuration.model_registry
    assert (config.cache_max_items, config.max_uploads) == (8, 3)
    monkeypatch.setenv("COGMENT_MODEL_REGISTRY_VERSION_CACHE_MAX_ITEMS", "9")
    config = settings(monkeypatch, f"--config={file}", "--sent_version_chunk_size=5").configuration.model_registry
    assert (config.cache_max_items, config.sent_version_chunk_bytes) == (9, 5)


@pytest.mark.parametrize("flag", ["--cache_max_items=0", "--sent_version_chunk_size=0", "--archive_dir=", "--port=x"])
async def test_values_that_cannot_be(flag: str) -> None:
    output = await run_here("services", "model_registry", flag)
    assert (output.code, output.err.count("\n")) == (1, 1)
    assert flag.partition("=")[0] in output.err
