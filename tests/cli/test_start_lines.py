"""Start lines of processes: where services store, and variables that no command knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.process import run, server

MISSPELT = "COGMENT_TRIAL_DATASTORE_FILE_STORAGE"
WARNING = f"{MISSPELT}: no command knows this variable; did you mean {MISSPELT}_PATH?"


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["trial_datastore"], "trials  in memory"),
        (["trial_datastore", "--file_storage=trials.db"], "trials  {folder}/trials.db"),
        (["model_registry", "--archive_dir=models"], "models  {folder}/models"),
        (["directory", "--persistence_file=services"], "directory  {folder}/services"),
        (["trainer", "--folder=runs"], "runs  {folder}/runs"),
    ],
)
async def test_a_service_says_where_it_stores_and_which_variable_it_does_not_know(
    arguments: list[str], place: str, tmp_path: Path
) -> None:
    variables = {MISSPELT: "elsewhere.db"}
    async with server("services", *arguments, "--port=0", folder=tmp_path, variables=variables) as one:
        await one.wait_serving()
        assert await one.stop() == 0
        await one.read_rest()
    assert one.out.splitlines()[-1] == place.format(folder=tmp_path)
    assert one.err.count(WARNING) == 1


async def test_a_client_is_told_once() -> None:
    asked = await run(
        "client",
        "trial",
        "list",
        "--endpoint=grpc://127.0.0.1:1",
        "--timeout=100ms",
        COGMENT_TRIAL_DATASTORE_FILE_STORAGE="x",
    )
    assert asked.code == 1
    assert asked.err.splitlines()[0] == f"trio-cogment: {WARNING}"
    assert asked.err.count(WARNING) == 1
