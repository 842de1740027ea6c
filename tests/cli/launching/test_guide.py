"""The examples of `docs/launch.md` work as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.process import PATIENCE_SECONDS, environment_variables
from tests.ports import free_port
from trio_cogment.cli.launching import load_plan
from trio_cogment.cli.launching.template import Template

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "launch.md"


def example() -> str:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert isinstance(text, str)
    return text


def test_the_example_runs(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text(example().replace("9005", str(free_port())))
    done = subprocess.run(
        [sys.executable, "-m", "trio_cogment", "launch", "-q", str(file), "lifecycle"],
        env=environment_variables(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[directory:(1/1)] INFO: ready" in done.stderr
    assert "[trials:(2/2)] INFO: ended with exit code 0" in done.stderr
    assert (tmp_path / "data").is_dir()


def test_the_example_without_arguments(tmp_path: Path) -> None:
    file = tmp_path / "launch.yaml"
    file.write_text(example())
    plan = load_plan(file, [], {})
    assert plan.warnings == ()
    assert plan.scripts[1].commands[1][-1] == "--type=datalog"


def test_the_templates() -> None:
    found = re.findall(
        r"^\| (`+)(\{\{.*?\}\})\1 \| (?!how|all|the arg)", GUIDE.read_text(encoding="utf-8"), re.MULTILINE
    )
    results = {source: Template(source).render({"MODE": "debug", "HOST": "here", "PORT": "1"}) for _, source in found}
    assert results == {
        '{{or .PORT "9000"}}': "1",
        '{{if eq .MODE "debug"}}--verbose{{end}}': "--verbose",
        '{{printf "%s:%s" .HOST .PORT}}': "here:1",
        "{{`{{`}}": "{{",
    }
