"""The exception tree and its one table."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable

import pytest

from trio_cogment.base import errors
from trio_cogment.base.errors import (
    UNEXPECTED_FAILURE,
    CogmentError,
    EndpointError,
    InvalidArgumentError,
    MissingExtraError,
    ProtocolError,
    RpcError,
    StatusCode,
    TrialFailedError,
    needing,
    status_of,
)
from trio_cogment.base.outcome import EndCause, Loss, TrialOutcome

LOSS = Loss(
    "alice", EndCause.PARTICIPANT_FAILED, "it raised ValueError", True, 2, '  File "player.py", line 3\nValueError: no'
)
FAILED = TrialOutcome("t1", EndCause.PARTICIPANT_FAILED, "alice", "it raised ValueError", 3, (LOSS,))


def all_errors() -> list[type[CogmentError]]:
    return [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, CogmentError)]


def some_errors() -> list[CogmentError]:
    """Return errors that are made of other arguments than their texts, from all over the package."""
    from trio_cogment.environments.errors import InvalidActionError, InvalidEnvironmentError
    from trio_cogment.seats.base import SeatError
    from trio_cogment.spaces import SpaceError

    return [
        TrialFailedError(FAILED),
        RpcError(StatusCode.NOT_FOUND, "no such trial"),
        MissingExtraError.of("numpy", "arrays"),
        SpaceError("expected 0 to 1, got 2").inside("arm", 0).of("action"),
        InvalidActionError("duel", "player_0", SpaceError("expected 0 to 1, got 2")),
        InvalidEnvironmentError("duel", "player_0", "reward: expected a number"),
        SeatError("duel", "player_1", "no action"),
    ]


@pytest.mark.parametrize("error", some_errors(), ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_errors_cross_processes(error: CogmentError, again: Callable[[CogmentError], CogmentError]) -> None:
    error.add_note("in a worker")
    found = again(error)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.args == error.args
    assert found.__notes__ == error.__notes__
    assert status_of(found) == status_of(error)
    for name in ("name", "code", "outcome", "environment", "actor", "reason", "path", "root"):
        assert getattr(found, name, None) == getattr(error, name, None)


def test_every_error_has_one_root_and_a_status() -> None:
    for kind in all_errors():
        if kind in {CogmentError, ProtocolError, RpcError}:
            continue
        code, text = status_of(kind("why") if kind is not TrialFailedError else TrialFailedError(FAILED))
        assert code not in {StatusCode.OK, StatusCode.UNKNOWN}, kind
        assert text == ("why" if kind is not TrialFailedError else str(FAILED))


def test_a_failed_trial_has_the_traceback_as_a_note_that_no_peer_gets() -> None:
    error = TrialFailedError(FAILED)
    assert "ValueError: no" not in status_of(error)[1]
    assert error.__notes__ == ['  File "player.py", line 3\nValueError: no']


def test_nearest_listed_ancestor_decides() -> None:
    class NarrowerError(EndpointError):
        pass

    assert status_of(NarrowerError("x"))[0] is StatusCode.INVALID_ARGUMENT
    assert issubclass(NarrowerError, InvalidArgumentError)


def test_a_package_that_several_extras_bring_is_of_the_one_that_is_needed() -> None:
    with pytest.raises(MissingExtraError, match=r"numpy .*; the extra 'gym' brings it: ") as caught, needing("gym"):
        raise MissingExtraError.of("numpy", "arrays")
    assert caught.value.name == "numpy"
    with pytest.raises(MissingExtraError, match="the extra 'gym' brings it"), needing("gym"):
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
    with pytest.raises(MissingExtraError, match="pyarrow is not installed; the extra 'export'"), needing("gym"):
        raise MissingExtraError.of("pyarrow", "export")


def test_what_nobody_expected_leaks_nothing() -> None:
    assert status_of(ZeroDivisionError("secret")) == (StatusCode.UNKNOWN, UNEXPECTED_FAILURE)


def test_rpc_error_keeps_its_status_and_trailers() -> None:
    error = RpcError(StatusCode.ABORTED, "text", [("k", "v")])
    assert status_of(error) == (StatusCode.ABORTED, "text")
    assert error.trailing_metadata == (("k", "v"),)
    assert str(error) == "ABORTED: text"
    assert str(RpcError(StatusCode.ABORTED)) == "ABORTED"


def test_protocol_errors_say_whose_fault_it_is() -> None:
    with pytest.raises(TypeError):
        ProtocolError("whose?")
