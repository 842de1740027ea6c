"""Numbers, tables and lists are right; what is listed as equivalent is in the source, and has a reason."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from tests.mutants import report
from tests.mutants.drawing import SOURCE, Mutant, draw
from tests.mutants.equivalents import Equivalent, equivalents
from tests.mutants.forks import Verdict
from tests.mutants.judging import Judged

NOTICED, SURVIVED, TIMEOUT = Verdict("noticed", "t", "no"), Verdict("survived"), Verdict("timeout", "t")


@functools.cache
def drawn() -> list[Mutant]:
    return draw("trial/recording", 5, "1")


@functools.cache
def judged() -> list[Judged]:
    return [
        Judged(drawn()[0], NOTICED, NOTICED),
        Judged(drawn()[1], NOTICED, SURVIVED),
        Judged(drawn()[2], SURVIVED, TIMEOUT),
        Judged(drawn()[3], SURVIVED, Verdict("unreached")),
        Judged(drawn()[4], SURVIVED, SURVIVED),
    ]


def equivalent(mutant: Mutant) -> Equivalent:
    return Equivalent(mutant.file, mutant.scope, mutant.operator, mutant.removed, mutant.added, "it is the same")


def test_the_numbers() -> None:
    known = {one.name: one for one in (equivalent(drawn()[0]), equivalent(drawn()[4]))}
    assert drawn()[4].name in known
    score = report.score("trial", judged(), known)
    # One that is listed, and was noticed all the same, counts as any other.
    assert score == report.Score("trial", 5, 1, by_tests=2, by_runs=2, by_either=3, timeouts=1)
    assert (score.counted, score.survivors) == (4, 1)
    heading, line, row = report.table([score])
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        *("trial", "5", "1", "50.0 %", "50.0 %", "75.0 %", "1", "1"),
    ]
    assert heading.count("|") == line.count("|") == row.count("|")


def test_numbers_are_recorded_by_package(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    report.record("1", [report.score("rpc", judged(), {}), report.score("trial", judged(), {})], path)
    report.record("2", [report.score("trial", judged()[:1], {})], path)
    read = json.loads(path.read_text())
    assert read["packages"] == {
        "rpc": ["1", "5", "0", "40.0 %", "40.0 %", "60.0 %", "1", "2"],
        "trial": ["2", "1", "0", "100.0 %", "100.0 %", "100.0 %", "0", "0"],
    }
    assert all(len(row) == len(read["headings"]) - 1 for row in read["packages"].values())


def test_the_whole_report_can_be_read_again() -> None:
    read = json.loads(report.as_json("1", {"trial": judged()}, [report.score("trial", judged(), {})]))
    assert read["seed"] == "1"
    assert [one["name"] for one in read["mutants"]["trial"]] == [mutant.name for mutant in drawn()]
    assert read["mutants"]["trial"][1]["runs"]["outcome"] == "survived"
    assert drawn()[4].name in report.survivor(judged()[4])


def test_a_list_is_read_by_name(tmp_path: Path) -> None:
    listed = tmp_path / "equivalents.toml"
    listed.write_text(f"# none\n\n{report.entry(judged()[3])}\n{report.entry(judged()[4])}")
    assert list(equivalents(listed)) == [drawn()[3].name, drawn()[4].name]


def test_what_is_listed_is_in_the_source_and_has_a_reason() -> None:
    for one in equivalents().values():
        lines = [line.strip() for line in (SOURCE / one.file).read_text().splitlines()]
        assert set(one.removed) <= set(lines), one
        assert len(one.reason) > 20, one
