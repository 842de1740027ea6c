"""Every pair of a state and a cause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.trainer.trainer_pb2 import RunStatus
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.trainer.runs import TABLE, Cause, Run, RunOutcome, RunState, follow, with_checkpoint

#: One row for each cause: what it makes of INIT, HANDSHAKE, READY, EXECUTING, PAUSED, FAULT, TERM. Each letter is the
#: next state (i h r e p f t), "." the same state, and "-" a refusal.
ROWS = {
    Cause.STARTED: "h------",
    Cause.REGISTERED: "-r...--",
    Cause.ATTACHED: "r-...--",
    Cause.TELEMETRY: "--e.---",
    Cause.PAUSE: "--pp.--",
    Cause.RESUME: "---.e--",
    Cause.RESUME_UNPUBLISHED: "--.-r--",
    Cause.FINISHED: "-tttt..",
    Cause.LIMIT: "-tttt..",
    Cause.FAILED: "-ffff..",
    Cause.START_FAILED: "ff---..",
    Cause.REFUSED: "t------",
    Cause.NOT_REGISTERED: "-f.....",
    Cause.NO_HEARTBEAT: "--fff..",
    Cause.CANCEL: "ttttt..",
    Cause.RESTARTED: ".iiff--",
    Cause.RESTARTED_EXTERNAL: ".-...--",
    Cause.CLEANED: "-----t.",
}
LETTERS = dict(zip("ihrepft", RunState, strict=True))
OUTCOMES = {
    Cause.FINISHED: RunOutcome.SUCCEEDED,
    Cause.LIMIT: RunOutcome.SUCCEEDED,
    Cause.CANCEL: RunOutcome.CANCELED,
    Cause.FAILED: RunOutcome.FAILED,
    Cause.START_FAILED: RunOutcome.FAILED,
    Cause.REFUSED: RunOutcome.FAILED,
    Cause.NOT_REGISTERED: RunOutcome.FAILED,
    Cause.NO_HEARTBEAT: RunOutcome.FAILED,
}


def a_run(state: RunState = RunState.INIT, *, external: bool = False, published: bool = False) -> Run:
    return Run(run_id="r", digest="d", external=external, created_ns=1, updated_ns=1, state=state, published=published)


def test_the_numbers_are_those_of_the_wire() -> None:
    names = {"HANDSHAKE": "HSHK", "READY": "RDY", "EXECUTING": "EXEC", "PAUSED": "PAUSE"}
    wire = {RunStatus.Value(f"RUN_STATUS_{names.get(state.name, state.name)}"): state for state in RunState}
    assert wire == {int(state): state for state in RunState}


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("state", RunState)
def test_every_pair(state: RunState, cause: Cause) -> None:
    letter = ROWS[cause][state - 1]
    run = a_run(state)
    if letter == "-":
        assert (state, cause) not in TABLE
        with pytest.raises(FailedPreconditionError, match=f"no {cause.value} is possible in the state {state.name}"):
            follow(run, cause, 2)
        return
    after = follow(run, cause, 2, "reason", "detail")
    assert after.state is (state if letter == "." else LETTERS[letter])
    if letter == "." and cause is not Cause.TELEMETRY:
        assert after is run
    if letter in "ft" and cause not in (Cause.CLEANED, Cause.RESTARTED):
        assert (after.outcome, after.failure_reason, after.detail) == (OUTCOMES[cause], "reason", "detail")
    elif cause is Cause.RESTARTED and letter == "f":
        assert after.outcome is RunOutcome.FAILED
    else:
        assert after.outcome is None


#: The rows of the protocol's table of states: from which states, by which causes, to which state.
PROTOCOL_ROWS = {
    "INIT to HSHK: start of the worker": ("INIT", [Cause.STARTED], "HANDSHAKE"),
    "INIT stays: an external run waits for its worker": ("INIT", [Cause.RESTARTED_EXTERNAL], "INIT"),
    "INIT to TERM: cancel, refusal": ("INIT", [Cause.CANCEL, Cause.REFUSED], "TERM"),
    "INIT to TERM by way of FAULT: failed start": ("INIT", [Cause.START_FAILED], "FAULT"),
    "HSHK to RDY: registration": ("HANDSHAKE", [Cause.REGISTERED], "READY"),
    "INIT to RDY: registration of an external worker": ("INIT", [Cause.ATTACHED], "READY"),
    "HSHK, RDY to FAULT: exit code": ("HANDSHAKE READY", [Cause.FAILED], "FAULT"),
    "HSHK to FAULT: no registration in time": ("HANDSHAKE", [Cause.NOT_REGISTERED], "FAULT"),
    "HSHK, RDY, EXEC, PAUSE to TERM: cancel, exit code 0, schedule": (
        "HANDSHAKE READY EXECUTING PAUSED",
        [Cause.CANCEL, Cause.FINISHED, Cause.LIMIT],
        "TERM",
    ),
    "RDY to EXEC: first accepted message": ("READY", [Cause.TELEMETRY], "EXECUTING"),
    "RDY, EXEC to PAUSE: pause": ("READY EXECUTING", [Cause.PAUSE], "PAUSED"),
    "PAUSE to EXEC: resume": ("PAUSED", [Cause.RESUME], "EXECUTING"),
    "PAUSE to RDY: resume before anything was published": ("PAUSED", [Cause.RESUME_UNPUBLISHED], "READY"),
    "EXEC, PAUSE to FAULT: exit code, heartbeats": (
        "EXECUTING PAUSED",
        [Cause.FAILED, Cause.NO_HEARTBEAT],
        "FAULT",
    ),
    "FAULT to TERM: cleanup": ("FAULT", [Cause.CLEANED], "TERM"),
}


@pytest.mark.parametrize(("before", "causes", "after"), PROTOCOL_ROWS.values(), ids=PROTOCOL_ROWS)
def test_row_of_the_protocol(before: str, causes: list[Cause], after: str) -> None:
    for state in before.split():
        for cause in causes:
            assert follow(a_run(RunState[state]), cause, 2).state is RunState[after]


@pytest.mark.parametrize("cause", Cause)
def test_nothing_leads_out_of_term(cause: Cause) -> None:
    run = a_run(RunState.TERM)
    if (RunState.TERM, cause) in TABLE:
        assert follow(run, cause, 2) is run
    else:
        with pytest.raises(FailedPreconditionError, match="in the state TERM"):
            follow(run, cause, 2)


def test_the_first_cause_wins() -> None:
    canceled = follow(a_run(RunState.EXECUTING), Cause.CANCEL, 2, "user_cancel")
    assert follow(canceled, Cause.FAILED, 3, "exit_code_143") is canceled
    failed = follow(a_run(RunState.EXECUTING), Cause.FAILED, 2, "exit_code_1", "the last lines")
    assert follow(failed, Cause.CANCEL, 3, "user_cancel") is failed
    cleaned = follow(failed, Cause.CLEANED, 4)
    assert (cleaned.state, cleaned.outcome, cleaned.failure_reason) == (RunState.TERM, RunOutcome.FAILED, "exit_code_1")
    assert (cleaned.updated_ns, cleaned.detail) == (4, "the last lines")


def test_a_refusal_tells_how_the_run_ended() -> None:
    canceled = follow(a_run(RunState.EXECUTING), Cause.CANCEL, 2, "user_cancel")
    with pytest.raises(FailedPreconditionError, match=r"no pause is possible in the state TERM \(canceled: user_cance"):
        follow(canceled, Cause.PAUSE, 3)


def test_what_was_published_decides_where_a_resume_leads() -> None:
    ready = follow(a_run(RunState.READY), Cause.PAUSE, 2)
    assert follow(ready, ready.resumption, 3).state is RunState.READY
    executing = follow(follow(a_run(RunState.READY), Cause.TELEMETRY, 2), Cause.PAUSE, 3)
    assert follow(executing, executing.resumption, 4).state is RunState.EXECUTING


def test_nobody_starts_the_worker_of_an_external_run() -> None:
    external = a_run(external=True)
    assert follow(external, external.registration, 2).state is RunState.READY
    with pytest.raises(FailedPreconditionError):
        follow(a_run(), a_run().registration, 2)
    executing = a_run(RunState.EXECUTING, external=True)
    assert follow(executing, executing.restart, 2) is executing
    started = a_run(RunState.EXECUTING)
    assert follow(started, started.restart, 2).state is RunState.FAULT


def test_the_latest_checkpoints_stay_with_a_run() -> None:
    run = a_run(RunState.EXECUTING)
    for number in range(1, 151):
        run = with_checkpoint(run, f"m@{number}")
    assert run.checkpoints == tuple(f"m@{number}" for number in range(51, 151))
    assert with_checkpoint(run, "m@150") is run
    failing = follow(run, Cause.FAILED, 2)
    assert with_checkpoint(failing, "m@151").checkpoints[-1] == "m@151"
    with pytest.raises(FailedPreconditionError, match="has ended, and saves no checkpoint"):
        with_checkpoint(follow(run, Cause.CANCEL, 2), "m@151")


@given(st.lists(st.sampled_from(Cause)))
def test_an_end_is_final_and_has_one_outcome(causes: list[Cause]) -> None:
    run = a_run()
    for cause in causes:
        before = run
        try:
            run = follow(run, cause, run.updated_ns + 1, cause.value)
        except FailedPreconditionError:
            continue
        if before.ended:
            assert run is before
        if before.outcome is not None:
            assert (run.outcome, run.failure_reason) == (before.outcome, before.failure_reason)
        if run.state in (RunState.FAULT, RunState.TERM):
            assert run.outcome is not None
