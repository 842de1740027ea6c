from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.trial import validate_params, validate_trial_id, validate_user_id
from trio_cogment.trial._params import buffered_ticks

from .harness import actor, make_params


def test_the_copy_is_normalised_and_the_original_is_not() -> None:
    params = make_params()
    params.environment.name = ""
    result = validate_params(params)
    assert result.environment.name == "env"
    assert params.environment.name == ""
    assert result.actors == params.actors


def test_an_absent_environment_gets_a_name() -> None:
    assert validate_params(TrialParams(actors=[actor("a")])).environment.name == "env"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (TrialParams(), "actors"),
        (make_params(actor("")), r"actors\[0\].name"),
        (make_params(actor("a"), actor("b", "")), r"actors\[1\].actor_class"),
        (make_params(actor("a\n")), r"actors\[0\].name"),
        (make_params(actor("a", "clé")), r"actors\[0\].actor_class"),
        (make_params(actor("a"), actor("a")), r"actors\[1\].name.*before"),
        (make_params(actor("env")), r"actors\[0\].name.*environment"),
        (make_params(actor("a", response_timeout=-1)), r"actors\[0\].response_timeout"),
        (make_params(actor("a", initial_connection_timeout=float("nan"))), r"actors\[0\].initial_connection_timeout"),
        (make_params(actor("a", response_timeout=float("inf"))), r"actors\[0\].response_timeout"),
        (make_params(nb_buffered_ticks=10_001), "nb_buffered_ticks: at most 10000"),
    ],
)
def test_what_is_wrong_is_named(params: TrialParams, field: str) -> None:
    with pytest.raises(InvalidArgumentError, match=field):
        validate_params(params)


def test_an_environment_name_must_be_printable() -> None:
    params = make_params()
    params.environment.name = "é"
    with pytest.raises(InvalidArgumentError, match=r"environment\.name"):
        validate_params(params)


@pytest.mark.parametrize(("given", "used"), [(0, 2), (1, 2), (-5, 2), (2, 2), (7, 7), (10_000, 10_000)])
def test_buffered_ticks(given: int, used: int) -> None:
    assert buffered_ticks(validate_params(make_params(nb_buffered_ticks=given))) == used


def test_ids() -> None:
    assert validate_trial_id("a b/c~") == "a b/c~"
    assert validate_user_id("") == ""
    assert validate_user_id("me" * 256) == "me" * 256
    bad: list[Any] = ["é", "a\tb", "x\x7f", " a", "a ", "a" * (513)]
    for text in bad:
        with pytest.raises(InvalidArgumentError, match="user id"):
            validate_user_id(text)
    for text in ["", *bad]:
        with pytest.raises(InvalidArgumentError, match="trial id"):
            validate_trial_id(text)
