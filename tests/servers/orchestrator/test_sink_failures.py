"""Words for a data log's failure."""

from __future__ import annotations

import pytest

from trio_cogment.base.errors import CogmentError, QuotaError, RpcError, StatusCode, UnavailableError
from trio_cogment.servers.orchestrator._datalog import first_of, no_connection, refusal_of, text_of

REMEDY = (
    "the data log has to listen before a trial that names it starts: start it, or correct datalog.endpoint in the "
    "trial's parameters"
)


@pytest.mark.parametrize(
    ("failure", "kind", "is_away"),
    [
        (RpcError(StatusCode.RESOURCE_EXHAUSTED, "the quota is used up"), QuotaError, False),
        (RpcError(StatusCode.UNAVAILABLE, "nobody is there"), UnavailableError, True),
        (UnavailableError("away"), UnavailableError, True),
        (ValueError("a bug"), UnavailableError, False),
        (UnavailableError("log:1: TLS handshake failed: self-signed certificate"), UnavailableError, False),
        (UnavailableError("log:1: connection lost; the server may speak TLS"), UnavailableError, False),
    ],
)
def test_why_a_trial_cannot_start(failure: Exception, kind: type[CogmentError], is_away: bool) -> None:
    """Of a log elsewhere that is not there, the text also says what to do."""
    refusal = refusal_of("grpc://log:1", failure)
    assert type(refusal) is kind
    assert str(refusal) == f"datalog: grpc://log:1: {text_of(failure)}" + (f"; {REMEDY}" if is_away else "")
    refusal = refusal_of("cogment://discover", failure)
    assert str(refusal) == f"datalog: cogment://discover: {text_of(failure)}"


def test_a_log_that_does_not_answer() -> None:
    refusal = no_connection("grpc://log:1", 10)
    assert type(refusal) is UnavailableError
    assert str(refusal) == f"datalog: grpc://log:1: no connection in 10 s; {REMEDY}"


def test_of_what_nobody_expected_the_type_is_told() -> None:
    assert text_of(UnavailableError("away")) == "away"
    assert text_of(ValueError("a bug")) == "ValueError('a bug')"


def test_the_first_of_groups_in_groups() -> None:
    one = ValueError("a bug")
    assert first_of(ExceptionGroup("outer", [ExceptionGroup("inner", [one, KeyError()]), KeyError()])) is one
