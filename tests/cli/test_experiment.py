"""`trio-cogment play experiment.yaml --demo`, and `trio-cogment experiment`."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random
from string import ascii_letters
from typing import Any

import pyarrow.parquet
import pytest
import trio
from click.testing import CliRunner, Result

from trio_cogment.base.sqlite_hold import DatabaseHold
from trio_cogment.cli.errors import failure_of
from trio_cogment.cli.experiment.export import trials_as_files
from trio_cogment.cli.root import cli
from trio_cogment.experiment import demo, load_experiment
from trio_cogment.experiment.definition import Question
from trio_cogment.rl.datasets.sources import open_source
from trio_cogment.servers.datastore._sqlite import FORMAT

EXAMPLE = Path(__file__).parents[2] / "examples" / "experiment"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_commands_that_are_printed_can_be_pasted(folder: Path) -> None:
    made = run("init", "--experiment", "My study")
    assert "cd 'My study' && " in made.output
    name = "My Study e.yaml"
    (folder / name).write_text("name: small\ntrials: [{environment: CartPole-v1}]\nwaiting: {groups: 1}\n")
    done = run("play", name, "--demo", "--storage=none")
    assert shlex.split(done.output.splitlines()[-1])[1:5] == ["trio-cogment", "experiment", "export", name]


def test_a_demonstration_its_tables_and_what_is_forgotten(folder: Path) -> None:
    done = run("play", "experiment.yaml", "--demo")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[:2] == ["complete: 8", "data: .cogment/meeting.demo.db"]
    data = "--data=.cogment/meeting.demo.db"
    done = run("experiment", "export", "experiment.yaml", data, "--output=tables")
    assert done.exit_code == 0, done.output
    assert "tables/trials: 8 trials, 120 steps" in done.output
    people = rows(folder / "tables" / "participants.csv")
    assert {row["end"] for row in people} == {"complete"}
    assert sorted({(row["group"], row["condition"]) for row in people}) == [
        *[("1", "follows"), ("2", "stubborn"), ("3", "follows"), ("4", "stubborn")]
    ]
    actions = rows(folder / "tables" / "actions.csv")
    assert len(actions) == 8 * 10
    trials = rows(folder / "tables" / "trials.csv")
    assert [(row["trial"], row["name"], row["environment"]) for row in trials if row["group"] == "1"] == [
        *[("1", "first", "coordination:Meeting"), ("2", "second", "coordination:Meeting")]
    ]
    assert {row["trial_id"] for row in trials} == {row["trial_id"] for row in actions}
    arguments = {row["condition"]: (json.loads(row["arguments"])["rounds"], json.loads(row["bots"])) for row in trials}
    assert arguments["follows"] == (5, {"robot": "coordination:follower"})
    codebook = (folder / "tables" / "codebook.md").read_text().partition("## trials/data")[2]
    columns = pyarrow.parquet.read_schema(next((folder / "tables/trials/data").glob("*.parquet"))).names
    assert [name for name in columns if f"| `{name}` |" not in codebook] == []
    # The same ticks are in the trials' own tables.
    from trio_cogment.rl import replay_environment

    assert sorted(replay_environment(folder / "tables" / "trials").agents) == ["ann", "bob", "robot"]
    first = people[0]["participant"]
    done = run("experiment", "forget", "experiment.yaml", first, data)
    assert done.output == f"forgotten: {first}; trials deleted: 2 of 2\n"
    assert run("experiment", "forget", "experiment.yaml", first, data).exit_code == 1
    done = run("experiment", "export", "experiment.yaml", data, "--output=tables")
    assert "tables/trials: 6 trials, 90 steps" in done.output
    for path in (folder / "tables").glob("*.csv"):
        assert first not in path.read_text()
    for path in (folder / ".cogment").iterdir():
        assert first.encode() not in path.read_bytes()
    other = rows(folder / "tables" / "participants.csv")[0]["participant"]
    done = run("experiment", "forget", "experiment.yaml", other, data, "--keep_trials")
    assert "trials deleted: 0 of 2" in done.output
    done = run("experiment", "export", "experiment.yaml", data, "--output=tables", "--json")
    written = json.loads(done.output)
    assert (len(written["written"]), written["trials"], written["steps"]) == (6, 6, 90)


def test_an_export_leaves_nothing_of_people_who_are_forgotten(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also if nobody is left, or nothing is written of trials."""
    trial = "environment: CartPole-v1\n    arguments: {max_episode_steps: 2}"
    (folder / "s.yaml").write_text(f"name: s\nparticipants: {{id: code, allow: [ann]}}\ntrials:\n  - {trial}\n")
    assert run("play", "s.yaml", "--demo").exit_code == 0
    export = ("experiment", "export", "s.yaml", "--data=.cogment/s.demo.db", "--output=tables")
    trials = folder / "tables" / "trials"
    assert run(*export).exit_code == 0
    assert trials.exists()
    (trials / "notes.txt").write_text("mine")
    assert "notes.txt" in run(*export, "--storage=none").output
    (trials / "notes.txt").unlink()
    assert run(*export, "--storage=none").exit_code == 0
    assert not trials.exists()
    assert run(*export).exit_code == 0
    assert "trials deleted: 1 of 1" in run("experiment", "forget", "s.yaml", "ann", "--data=.cogment/s.demo.db").output
    assert run(*export).exit_code == 0
    assert [path.name for path in (folder / "tables").iterdir() if path.is_dir()] == []
    assert not caplog.records  # nothing was left behind
    trials.mkdir()
    (trials / "notes.txt").write_text("a folder of somebody else")
    assert run(*export).exit_code == 0
    assert trials.exists()


@pytest.mark.parametrize(
    ("participants", "most"),
    [("query:PID", 4), ("code, allow: [a, b, c, d, e], keep_out: [a, b]", 2), ("drawn", 4)],
)
def test_a_demonstration_begins_anew_each_time(participants: str, most: int, folder: Path) -> None:
    """Nobody is at an end of before, or finds all places taken; and no two programs have the same id."""
    text = (folder / "experiment.yaml").read_text().replace("size: 2", "size: 2\n  groups: 2")
    (folder / "experiment.yaml").write_text(f"{text}participants: {{id: {participants}}}\n")
    for _ in range(2):
        done = run("play", "experiment.yaml", "--demo", "--storage=memory:")
        assert done.output.splitlines()[0] == f"complete: {most}", done.output
        done = run(
            "experiment", "export", "experiment.yaml", "--data=.cogment/meeting.demo.db", "--output=t", "--storage=none"
        )
        assert len(rows(folder / "t" / "participants.csv")) == most, done.output
        assert len(rows(folder / "t" / "actions.csv")) == most * 10
    done = run("play", "experiment.yaml", "--demo", "--storage=memory:", "--data=.cogment/meeting.demo.db")
    assert "a demonstration begins with a file of its own" in done.output
    (folder / ".cogment" / "meeting.demo.db").write_text("somebody's")  # it is not what it seems to be
    assert run("play", "experiment.yaml", "--demo", "--storage=memory:").exit_code == 1
    assert (folder / ".cogment" / "meeting.demo.db").read_text() == "somebody's"


def test_nothing_that_a_forgotten_person_has_typed_is_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a person is so small a part of the file that it would not be made smaller for that."""
    study = tmp_path / "study"
    assert run("init", "--experiment", "--page=chat", str(study)).exit_code == 0
    monkeypatch.chdir(study)
    plan = Path("experiment.yaml")
    plan.write_text(plan.read_text().replace("before:", "waiting: {groups: 30}\nbefore:", 1))
    monkeypatch.setattr(demo, "action_of", lambda form, random: "typed " + "".join(random.choices(ascii_letters, k=60)))
    monkeypatch.delitem(sys.modules, "conversation", raising=False)
    done = run("play", "experiment.yaml", "--demo", "--file_storage_compression=0")
    assert done.output.splitlines()[0] == "complete: 30", done.output
    data = "--data=.cogment/conversation.demo.db"
    assert run("experiment", "export", "experiment.yaml", data, "--output=tables", "--storage=none").exit_code == 0
    actions = rows(study / "tables" / "actions.csv")
    first = actions[0]["participant"]
    typed = [json.loads(row["action"]).encode() for row in actions if row["participant"] == first]
    others = [json.loads(row["action"]).encode() for row in actions if row["participant"] != first]
    kept = study / ".cogment" / "conversation.demo.play.db"
    assert len(typed) == 4
    assert all(text in kept.read_bytes() for text in (*typed, *others))
    done = run("experiment", "forget", "experiment.yaml", first, data)
    assert "trials deleted: 1 of 1" in done.output, done.output
    for path in (study / ".cogment").iterdir():
        content = path.read_bytes()
        assert not [text for text in typed if text in content], path
    assert all(text in kept.read_bytes() for text in others)


def test_a_demonstration_leaves_the_trials_of_people_alone(folder: Path) -> None:
    """Its trials are in a file of its own, also beside a server that has the people's; and they are no people's."""
    people = folder / ".cogment" / "play.db"
    assert run("play", "experiment.yaml", "--demo", f"--storage=sqlite:{people}").exit_code == 0
    before = people.read_bytes()
    data = "--data=.cogment/meeting.demo.db"
    with closing(DatabaseHold(FORMAT, str(people))) as server:
        server.open()
        for _ in range(2):  # they do not add up
            assert run("play", "experiment.yaml", "--demo").exit_code == 0
            done = run("experiment", "export", "experiment.yaml", data, "--output=tables")
            assert "tables/trials: 8 trials" in done.output, done.output
        refused = run("play", "experiment.yaml", "--demo", f"--storage=sqlite:{people}")
        failure = failure_of(refused.exception) if isinstance(refused.exception, Exception) else None
        assert failure is not None
        assert "is in use by another datastore" in failure.message
        assert "; --storage names another file" in failure.message
    assert people.read_bytes() == before
    own = folder / ".cogment" / "meeting.demo.play.db"

    async def stored() -> list[Any]:
        async with open_source(f"sqlite:{own}") as client:
            return [trial async for trial in client.all_trials()]

    trials = trio.run(stored)
    assert len(trials) == 8
    assert {trial.params.properties["resume.owner"] for trial in trials} == {"meeting demo"}
    assert {each.implementation for trial in trials for each in trial.params.actors if each.name != "robot"} == {"demo"}
    own.write_text("somebody's")
    assert run("play", "experiment.yaml", "--demo").exit_code == 1
    assert own.read_text() == "somebody's"


@pytest.mark.parametrize(
    ("bounds", "least", "most"),
    [
        ({"high": -1}, -101, -1),
        ({"low": 0.5, "high": 0.9}, 0.5, 0.9),
        ({"low": 5, "integer": True}, 5, 105),
        ({"high": 7.5, "integer": True}, -92, 7),
        ({}, 0, 100),
    ],
)
def test_programs_answer_numbers_within_their_limits(bounds: dict[str, Any], least: float, most: float) -> None:
    question = Question(name="n", ask="N?", kind="number", **bounds)
    answers = [question.checked(demo.answer_to(question, Random(seed))) for seed in range(50)]
    assert least <= min(answers) <= max(answers) <= most


def test_a_demonstration_says_what_was_refused(folder: Path) -> None:
    """And it does not wait until the time of the page is over, and fails: nobody has come to the end."""
    text = (folder / "experiment.yaml").read_text()
    check = "  - questions:\n      - {name: n, ask: N, kind: number, low: 0.2, high: 0.4, integer: true}\n"
    (folder / "experiment.yaml").write_text(text.replace("before:\n", f"before:\n{check}", 1))
    done = run("play", "experiment.yaml", "--demo", "--storage=memory:")
    assert done.exit_code == 1
    assert done.output.splitlines()[0] == "left: 8"
    assert "refused: before-1: N: expected a whole number (8 times)" in done.output
    assert "nobody has come to the end 'complete'" in done.output


def test_control_c_ends_a_demonstration_with_one_line(folder: Path) -> None:
    command = [sys.executable, "-m", "trio_cogment", "play", "experiment.yaml", "--demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while not list(folder.glob(".cogment/meeting.demo.play.db")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(output.splitlines()) <= 1, output


def test_nobody_is_called_forgotten_while_another_program_reads_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is deleted would stay in the file, and in its log: that is said, and doing it again brings it to an end."""
    monkeypatch.setattr("trio_cogment.base.sqlite_file._BUSY_SECONDS", 0.0)
    text = (folder / "experiment.yaml").read_text()
    ids = [f"secret-{k}" for k in range(4)]
    (folder / "experiment.yaml").write_text(f"{text}participants: {{id: code, allow: [{', '.join(ids)}]}}\n")
    assert run("play", "experiment.yaml", "--demo", "--data=e.db", "--storage=sqlite:t.db").exit_code == 0
    forget = ["experiment", "forget", "experiment.yaml", "--data=e.db", "--storage=sqlite:t.db"]

    def kept(who: str) -> bool:
        return any(who.encode() in path.read_bytes() for path in folder.glob("[et].db*"))

    def forgotten_beside_a_reader(file: str, who: str, table: str) -> Result:
        with closing(sqlite3.connect(file, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute(f"SELECT count(*) FROM {table}").fetchone()
            return run(*forget, who)

    for who, file, table in ((ids[0], "e.db", "events"), (ids[1], "t.db", "trials")):
        refused = forgotten_beside_a_reader(file, who, table)
        assert refused.exit_code == 1
        assert f"{file}: another program reads the file" in refused.output
        assert "forgotten" not in refused.output
        assert run(*forget, who).output.startswith(f"forgotten: {who}; ")
        assert not kept(who)
    # One that was interrupted when the rows were gone, and nothing else was done.
    with closing(sqlite3.connect("e.db")) as raw, raw:
        raw.execute("INSERT INTO meta VALUES ('unclean', 'true')")
        raw.execute("DELETE FROM participants WHERE id = ?", (ids[2],))
    assert "nothing is left of who was forgotten before" in run(*forget, ids[2]).output
    assert "there is no participant" in run(*forget, ids[2]).output


@pytest.fixture
def demonstrated(folder: Path) -> Path:
    assert run("play", "experiment.yaml", "--demo").exit_code == 0
    return folder


async def test_the_archive_of_the_researchers_page_has_the_trials(
    demonstrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_source("sqlite:.cogment/meeting.demo.play.db") as client:
        ids = [trial.trial_id async for trial in client.all_trials()]
        files = await trials_as_files(client, [*ids[:2], "lost"])
        assert {"trials/README.md", "trials/meta/info.json"} < files.keys()
        assert b"of 2 trials" in files["trials/README.md"]
        assert await trials_as_files(client, ["lost"]) == {}
        monkeypatch.setattr("trio_cogment.cli.experiment.export._MAX_ARCHIVED_BYTES", 100)
        files = await trials_as_files(client, ids)
    assert list(files) == ["trials-are-missing.txt"]
    assert b"`trio-cogment experiment export` writes them" in files["trials-are-missing.txt"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["play", "experiment.yaml", "--grace=5"],
            "--grace: with an experiment it is in the file (dropout: grace_seconds)",
        ),
        (["play", "experiment.yaml", "--title=x"], "--title: with an experiment it is in the file (title)"),
        (["play", "CartPole-v1", "--demo"], "--demo: it is for experiment files (YAML)"),
        (["play", "CartPole-v1", "--data=x.db"], "--data: it is for experiment files (YAML)"),
        (["play", "nothing.yaml", "--demo"], "nothing.yaml: No such file"),
        (["play", "experiment.yaml", "--web=false"], "--web=false: expected a page to take part on"),
        (["experiment", "export", "experiment.yaml", "--output=x"], "nobody has taken part; --data names another one"),
        (["experiment", "forget", "experiment.yaml", "ann"], "nobody has taken part; --data names another one"),
        (["experiment", "forget", "experiment.yaml", "-x"], "behind `--`: EXPERIMENT -- ID"),
        (["experiment", "forget", "experiment.yaml", "--", "-x"], "nobody has taken part; --data names another one"),
    ],
)
def test_what_is_refused(arguments: list[str], error: str, folder: Path) -> None:
    done = run(*arguments)
    assert done.exit_code != 0
    assert error in f"{done.output} {done.exception!r} {getattr(done.exception, 'message', '')}"


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("coordination:Meeting", "coordination:Meting", "did you mean 'Meeting'?"),
        ("coordination:follower", "coordination:folower", "did you mean 'follower'?"),
        (
            "people: [ann, bob]",
            "people: [ann, bobby]",
            "trial 'first': people: there is no agent 'bobby'; did you mean 'bob'?",
        ),
        ("{robot: coordination:follower}", "{ann: coordination:follower}", "'ann' is a person's"),
        (
            "{robot: coordination:follower}",
            "{robot: coordination:PLACES}",
            "expected random, wizard, or MODULE:NAME of a function",
        ),
        ("{rounds: 5,", "{round: 5,", "round"),
        ("size: 2", "size: 4", "as many as a group has"),
        ("then: end", "then: default\n  default: 7", "default"),
    ],
)
def test_what_a_file_gets_wrong_is_said_before_anybody_comes(before: str, after: str, error: str, folder: Path) -> None:
    text = (folder / "experiment.yaml").read_text()
    assert before in text
    (folder / "experiment.yaml").write_text(text.replace(before, after))
    done = run("play", "experiment.yaml", "--demo")
    assert done.exit_code != 0
    assert error in f"{done.output} {getattr(done.exception, 'message', '')}"


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ("coordination:Meeting", "coordination:Meting", "environment: coordination:Meting"),
        ("coordination:Meeting", "Nothing-v0", "environment: Nothing-v0"),
        ("people: [ann, bob]", "people: [ann, bobby]", "- name: first"),
        ("labels: [park, museum, station]", "labels: [a]", "- name: first"),
        ("size: 2", "size: 4", "people: ["),
        ("{robot: coordination:follower}", "{robot: coordination:folower}", "- name: first"),
        ("then: end", "then: bot\n  bot: coordination:nobody", "then: bot"),
    ],
)
def test_what_environments_and_agents_do_not_have_is_said_with_the_line(
    before: str, after: str, part: str, folder: Path
) -> None:
    text = (folder / "experiment.yaml").read_text()
    assert before in text
    text = text.replace(before, after)
    (folder / "experiment.yaml").write_text(text)
    done = run("play", "experiment.yaml", "--demo")
    assert done.exit_code == 1, done.output
    found = re.search(r"play: experiment\.yaml: line (\d+): ", done.output)
    assert found, done.output
    lines = text.splitlines()
    begins = int(found[1]) - 1
    assert any(part in line for line in lines[begins : begins + 4]), (found[0], lines[begins])


def test_a_new_experiment_runs_and_has_a_test(tmp_path: Path) -> None:
    study = tmp_path / "study"
    done = run("init", "--experiment", str(study))
    assert done.exit_code == 0, done.output
    for name in ("experiment.yaml", "coordination.py"):
        assert (study / name).read_text() == (EXAMPLE / name).read_text()
    assert "trio-cogment play experiment.yaml --demo" in done.output
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_experiment.py"]
    tested = subprocess.run(command, cwd=study, capture_output=True, text=True, timeout=120, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    done = run("init", "--experiment", "--actors=2", str(tmp_path / "other"))
    assert "--actors: it is for a project" in done.output


@pytest.mark.parametrize("page", ["canvas", "chat", "drawing"])
def test_a_new_experiment_with_a_page_of_ones_own_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study"
    done = run("init", "--experiment", f"--page={page}", str(study))
    assert done.exit_code == 0, done.output
    written = {each.name for each in study.iterdir()}
    module = "conversation.py" if page == "chat" else "coordination.py"
    assert written == {"README.md", "experiment.yaml", "test_experiment.py", module, f"{page}.html"}
    assert module in (study / "README.md").read_text()
    monkeypatch.chdir(study)
    experiment = load_experiment("experiment.yaml")
    assert all(b'from "trio-cogment"' in trial.renderer for trial in experiment.trials)
    # In a process of its own: modules of other studies have the same names.
    command = [sys.executable, "-m", "trio_cogment", "play", "experiment.yaml", "--demo", "--storage=memory:"]
    demo = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert demo.stdout.splitlines()[0] == ("complete: 2" if page == "chat" else "complete: 8"), demo.stderr


def test_a_page_is_for_an_experiment(tmp_path: Path) -> None:
    done = run("init", "--page=chat", str(tmp_path / "study"))
    assert "--page: it is for an experiment; expected --experiment beside it" in done.output
    assert run("init", "--experiment", "--page=game", str(tmp_path / "study")).exit_code == 2
