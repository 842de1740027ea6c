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


def test_the_program_of_the_documents_reads_them(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "experiment", tmp_path, dirs_exist_ok=True)
    command = [sys.executable, "-m", "trio_cogment"]
    subprocess.run([*command, "play", "experiment.yaml", "--demo"], cwd=tmp_path, check=True, capture_output=True)
    data = ["--data=.cogment/meeting.demo.db", "--output=tables"]
    export = [*command, "experiment", "export", "experiment.yaml", *data]
    subprocess.run(export, cwd=tmp_path, check=True, capture_output=True)
    document = (ROOT / "docs" / "experiments.md").read_text()
    program = textwrap.dedent("   import pandas" + document.split("import pandas", 1)[1].split("```", 1)[0])
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    rows = re.findall(r"^(?:\w+)? +(\w+) +\d\.0$", done.stdout, re.MULTILINE)
    assert len(set(rows)) == 8, done.stdout
