"""The example on the published SDK runs as its README says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.example_folders import example
from tests.interop.scenes import Scene

pytestmark = pytest.mark.interop


def test_the_published_sdk(scene: Scene, foreign_python: str, tmp_path: Path) -> None:
    orchestrator = scene.orchestrator()
    found = example("published_sdk", tmp_path, **{"grpc://localhost:9000": orchestrator.lifecycle})
    found.python = foreign_python
    assert found.run() == found.printed
