"""What is said of a data log's failure."""

from __future__ import annotations

import pytest

from trio_cogment.errors import CogmentError, QuotaError, RpcError, StatusCode, UnavailableError
from trio_cogment.orchestrator._sink_failures import first_of, refusal_of, text_of


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (RpcError(StatusCode.RESOURCE_EXHAUSTED, "the quota is used up"), QuotaError),
        (RpcError(StatusCode.UNAVAILABLE, "nobody is there"), UnavailableError),
        (UnavailableError("away"), UnavailableError),
        (ValueError("a bug"), UnavailableError),
    ],
)
def test_why_a_trial_cannot_start(failure: Exception, kind: type[CogmentError]) -> None:
    refusal = refusal_of("grpc://log:1", failure)
    assert type(refusal) is kind
    assert str(refusal) == f"datalog: grpc://log:1: {text_of(failure)}"


def test_of_what_nobody_expected_the_type_is_told() -> None:
    assert text_of(UnavailableError("away")) == "away"
    assert text_of(ValueError("a bug")) == "ValueError('a bug')"


def test_the_first_of_groups_in_groups() -> None:
    one = ValueError("a bug")
    assert first_of(ExceptionGroup("outer", [ExceptionGroup("inner", [one, KeyError()]), KeyError()])) is one
