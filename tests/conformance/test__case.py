"""Cases and verdicts."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from trio_cogment.conformance import SERVICES, Case, Server, Verdict, cases_of, judged


async def no_play(_server: Server) -> str:
    return ""


def case(documented: str = "", reference: tuple[str, ...] = (), ours: str = "") -> Case:
    named = partial(Case, service="directory", name="x", rule="R.", source="S")
    return named(documented=documented, reference=reference, ours=ours, play=no_play)


@pytest.mark.parametrize(
    ("of", "outcome", "verdict"),
    [
        (case("a"), "a", Verdict.DOCUMENTED),
        (case("a", ("a",), "a"), "a", Verdict.DOCUMENTED),
        (case("a", ("b", "c"), "d"), "c", Verdict.REFERENCE),
        (case("a", ("b",), "d"), "d", Verdict.OURS),
        (case("a", ("b",), "d"), "e", Verdict.DIFFERENT),
        (case(), "", Verdict.DIFFERENT),
        (case("", ("b",)), "", Verdict.DIFFERENT),
    ],
)
def test_the_first_verdict_that_fits(of: Case, outcome: str, verdict: Verdict) -> None:
    assert judged(of, outcome).verdict is verdict


def test_each_case_says_what_it_is_about() -> None:
    cases = cases_of()
    assert len(cases) >= 100
    assert len({each.key for each in cases}) == len(cases)
    for service, listed in itertools.groupby(cases, lambda each: each.service):
        assert service in SERVICES
        assert cases_of([service]) == list(listed)
    for each in cases:
        assert each.rule.endswith(".")
        assert each.source
        assert each.documented or each.reference or each.ours
        assert "" not in each.reference, each.key
        assert bool(each.ours) == bool(each.row), each.key
