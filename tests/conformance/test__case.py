"""Cases and verdicts."""

from __future__ import annotations

import itertools
import re
from functools import partial
from pathlib import Path

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


SERVERS = Path(__file__).resolve().parents[1] / "servers"
#: The cases of the kit for the numbered edge cases of the services' own tests. None: the kit cannot play it with any
#: server; docs/conformance.md says why.
SHARP: dict[str, dict[int, tuple[str, ...] | None]] = {
    "orchestrator": {
        1: ("taken_id",),
        2: ("start_without_actors",),
        3: ("hard_end_before_all_are_there",),
        4: ("own_time_to_connect",),
        5: ("optional_actor_that_never_comes",),
        6: ("silent_environment",),
        7: ("one_step",),
        8: ("soft_end_within_a_tick",),
        9: ("actions_after_the_final_observation",),
        10: ("observations_after_the_final_ones",),
        11: ("own_time_to_answer",),
        12: ("late_action",),
        13: ("one_who_acted_and_left",),
        14: ("rewards_for_other_ticks",),
        15: ("weighted_reward",),
        16: ("receivers_of_messages",),
        17: ("message_to_a_client_that_has_not_joined",),
        18: ("observations_of_another_tick", "too_few_observations", "observations_that_are_not_there"),
        19: ("watcher_that_does_not_read",),
        20: ("optional_actor_that_comes_too_late",),
    },
    "datastore": {
        1: None,  # samples that were evicted
        2: ("sample_out_of_sync",),
        3: ("ended_stays_ended",),
        4: ("all_there_already",),
        5: ("handle_at_the_end",),
        6: ("count_of_all",),
        7: ("field_that_is_none", "adding_nothing", "sample_without_information"),
        8: ("filters_that_nobody_passes",),
        9: ("reward_to_a_class",),
        10: ("message_to_all",),
        11: ("deleting_what_is_read",),
        12: ("stored_when_the_log_ends",),
    },
    "model_registry": {
        13: ("numbers_of_versions",),
        14: ("names_of_models",),
        15: ("more_models_than_asked_for", "pages_of_versions"),
        16: ("versions_that_are_wrong", "version_without_data", "version_of_no_model"),
        17: ("news_of_versions", "news_of_no_model", "news_of_a_deleted_model"),
    },
    "directory": {18: ("service_that_answers", "service_that_does_not_answer"), 19: None},  # load balancing
}


@pytest.mark.parametrize("service", SHARP)
def test_each_sharp_edge_has_a_case(service: str) -> None:
    """The numbers are those of `test_reference_cases.py` of each service."""
    text = (SERVERS / service / "test_reference_cases.py").read_text(encoding="utf-8")
    found = {int(number) for number in re.findall(r"^async def test_case_(\d+)_", text, re.MULTILINE)}
    assert SHARP[service].keys() == found
    kit = "trial_datastore" if service == "datastore" else service
    played = {case.name for case in cases_of([kit])}
    assert {name for names in SHARP[service].values() for name in names or ()} <= played
