"""Modules that `trio-cogment generate` writes, on the published SDK."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.processes import HERE
from tests.interop.test_published_sdk import TRIALS, run_application
from tests.sdk.spec.projects import project as write_project

pytestmark = pytest.mark.interop

#: Prints what a settings module says, as names of types.
SHOWN = """\
import json
import cog_settings


def named(kind):
    return None if kind is None else kind.DESCRIPTOR.full_name


print(json.dumps({
    "classes": {
        one.name: [named(one.observation_space), named(one.action_space), named(one.config_type)]
        for one in cog_settings.actor_classes
    },
    "trial": named(cog_settings.trial.config_type),
    "environment": named(cog_settings.environment.config_type),
}))
"""


def generate(folder: Path) -> None:
    command = [sys.executable, "-m", "trio_cogment", "generate", "--spec=cogment.yaml", "--output=cog_settings.py"]
    subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=True)


def shown(python: str, folder: Path) -> dict[str, object]:
    command = [python, "-W", "error", "-c", SHOWN]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A copy of the application, with settings that our generator made."""
    folder = tmp_path / "app"
    shutil.copytree(HERE / "app", folder, ignore=shutil.ignore_patterns("__pycache__"))
    generate(folder)
    return folder


def test_the_settings_are_those_of_the_published_generator(foreign_python: str, project: Path, ours: Path) -> None:
    assert shown(foreign_python, ours) == shown(foreign_python, project)


def test_an_application_runs_with_them(foreign_python: str, ours: Path, tmp_path: Path) -> None:
    records = run_application(foreign_python, ours, tmp_path / "records")
    assert {f"{trial}.field" for trial in TRIALS} <= set(records)


def test_what_the_published_generator_cannot_do(foreign_python: str, tmp_path: Path) -> None:
    write_project(tmp_path)
    generate(tmp_path)
    assert shown(foreign_python, tmp_path) == {
        "classes": {
            "player": ["acme.game.Observation", "acme.game.Action", "acme.shared.Outer.Inner"],
            "smart-judge": ["acme.game.Move", "acme.shared.Outer", None],
        },
        "trial": "acme.game.TrialConfig",
        "environment": "Plain",
    }
