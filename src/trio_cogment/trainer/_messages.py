"""Runs as messages."""

from __future__ import annotations

from collections.abc import Collection

from trio_cogment.api.trainer.trainer_pb2 import RunRecord, RunStatus
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.trainer.runs import Run, RunState

_STATUSES = frozenset(RunStatus.values())


def record_of(run: Run, seq: int = 0, *, detailed: bool = False) -> RunRecord:
    """Return a run as clients see it.

    Args:
        run: the run.
        seq: the number of the change; 0: it is none.
        detailed: with what may be long.
    """
    record = RunRecord(
        run_id=run.run_id,
        status=RunStatus.Name(run.state),
        digest=run.digest,
        gpu_slots=run.gpu_slots,
        checkpoints=run.checkpoints,
        outcome=run.outcome.value if run.outcome is not None else "",
        detail=run.detail if detailed else "",
        run_name=run.run_name,
        seq_id=seq,
    )
    record.created_at.FromNanoseconds(run.created_ns)
    record.updated_at.FromNanoseconds(run.updated_ns)
    if run.heartbeat_ns:
        record.last_heartbeat.FromNanoseconds(run.heartbeat_ns)
    if run.gpu_slots:
        record.gpu_slot = run.gpu_slots[0]
    if run.failure_reason:
        record.failure_reason = run.failure_reason
    return record


def status_name(state: RunState) -> str:
    """Return what a state is called on the wire, without the prefix of all of them."""
    return RunStatus.Name(state).removeprefix("RUN_STATUS_")


def statuses_of(status_filter: Collection[int]) -> frozenset[int]:
    """Return the wanted statuses; all of them if none is named.

    Raises:
        InvalidArgumentError: one does not exist.
    """
    for status in status_filter:
        if status not in _STATUSES or not status:
            raise InvalidArgumentError(f"status_filter: expected statuses from 1 to {max(_STATUSES)}, got {status}")
    return frozenset(status_filter) or _STATUSES
