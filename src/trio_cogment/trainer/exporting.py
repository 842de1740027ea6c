"""The steps and episodes of a run as Parquet files; needs the extra `export`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from trio_cogment.api.trainer.trainer_pb2 import RunEpisode, RunStatus, RunStep
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.host.beside import open_beside
from trio_cogment.rl.datasets.arrow import pa, parquet_file
from trio_cogment.trainer.client import TrainerClient

#: Rows are written in groups of this many.
_ROWS = 10_000
_TIMESTAMP = "google.protobuf.Timestamp"


async def export_run(
    client: TrainerClient, run_id: str, folder: str | os.PathLike[str], *, wait: bool = False
) -> dict[str, int]:
    """Write the steps and episodes of a run, as `steps.parquet` and `episodes.parquet`; return how many there are.

    A file has a column for each field of the message; times are in nanoseconds since the epoch. A file that is there is
    replaced when the new one is whole.

    Args:
        client: of the trainer.
        run_id: which run.
        folder: is made if it is not there.
        wait: wait for the end of a run that goes on.

    Raises:
        NotFoundError: there is no such run.
        FailedPreconditionError: it goes on.
        OSError: a file cannot be written.
    """
    record = await client.run(run_id)
    if not wait and record.status != RunStatus.RUN_STATUS_TERM:
        raise FailedPreconditionError(f"run {run_id!r} goes on: its end has to be waited for")
    os.makedirs(folder, exist_ok=True)
    return {
        "steps": await _export(client.steps(run_id), RunStep, Path(folder, "steps.parquet")),
        "episodes": await _export(client.episodes(run_id), RunEpisode, Path(folder, "episodes.parquet")),
    }


async def _export(stream: Any, kind: type[Message], path: Path) -> int:
    schema = _schema(kind)
    count = 0
    file, temporary = open_beside(str(path))
    try:
        with file, parquet_file(file, schema) as writer:
            rows: list[Mapping[str, Any]] = []
            async with stream as messages:
                async for message in messages:
                    rows.append(_row(message))
                    if len(rows) == _ROWS:
                        count += _write(writer, rows, schema)
            count += _write(writer, rows, schema)
            writer.close()
            file.flush()
            os.replace(temporary, path)
            temporary = ""
    finally:
        if temporary:
            os.unlink(temporary)
    return count


def _write(writer: Any, rows: list[Mapping[str, Any]], schema: Any) -> int:
    count = len(rows)
    writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    rows.clear()
    return count


def _schema(kind: type[Message]) -> Any:
    return pa.schema([(field.name, _type(field)) for field in kind.DESCRIPTOR.fields])


def _type(field: Any) -> Any:
    if field.message_type is not None:
        assert field.message_type.full_name == _TIMESTAMP
        return pa.int64()
    types = {
        FieldDescriptor.CPPTYPE_STRING: pa.string(),
        FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
        FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
        FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
        FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    }
    return types[field.cpp_type]


def _row(message: Message) -> Mapping[str, Any]:
    found = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None:
            value = value.ToNanoseconds() if message.HasField(field.name) else None
        found[field.name] = value
    return found
