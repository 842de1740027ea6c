"""The tables of an experiment in pandas, as the documents read them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.rl_peers

ROOT = Path(__file__).parents[2]

DOCUMENT = (ROOT / "docs" / "experiments.md").read_text()
PROGRAM = textwrap.dedent("   from pathlib" + DOCUMENT.split("   from pathlib", 1)[1].split("```", 1)[0])


def test_the_program_of_the_documents_reads_them(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "experiment", tmp_path, dirs_exist_ok=True)
    command = [sys.executable, "-m", "trio_cogment"]
    subprocess.run([*command, "play", "experiment.yaml", "--demo"], cwd=tmp_path, check=True, capture_output=True)
    data = ["--data=.cogment/meeting.demo.db", "--output=tables"]
    export = [*command, "experiment", "export", "experiment.yaml", *data]
    subprocess.run(export, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, check=True, capture_output=True, text=True)
    rows = re.findall(r"^(?:\w+)? +(\w+) +\d\.0$", done.stdout, re.MULTILINE)
    assert len(set(rows)) == 8, done.stdout


def test_it_reads_trials_of_two_environments_and_ids_as_they_are(tmp_path: Path) -> None:
    ids = ["007", "NA"]
    trials = "\n".join(
        f"  - {{environment: {name}, arguments: {{max_episode_steps: 2}}}}" for name in ("CartPole-v1", "Pendulum-v1")
    )
    people = f"participants: {{id: code, allow: {ids}}}"
    (tmp_path / "x.yaml").write_text(f"name: x\n{people}\ntrials:\n{trials}\n")
    command = [sys.executable, "-m", "trio_cogment"]
    subprocess.run([*command, "play", "x.yaml", "--demo"], cwd=tmp_path, check=True, capture_output=True)
    export = [*command, "experiment", "export", "x.yaml", "--data=.cogment/x.demo.db", "--output=tables"]
    subprocess.run(export, cwd=tmp_path, check=True, capture_output=True)
    program = f"{PROGRAM}\nprint(*sorted(both.groupby('participant').groups), len(both), both['trial'].nunique())"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == f"{' '.join(ids)} 8 2"
