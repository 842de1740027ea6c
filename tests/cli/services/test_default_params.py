"""Words of a server about its default parameters when it starts."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from trio_cogment.cli.services.default_params import ParamsSettings, load_default_params, warn_of_unknown_classes
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.sdk.spec import ActorClass, Spec

PROJECT = """
import: {proto: [game.proto]}
actor_classes:
  - {name: player, observation: {space: game.Board}, action: {space: game.Move}}
  - {name: judge, observation: {space: game.Board}, action: {space: game.Move}}
"""
PARAMS = """
trial_params:
  environment: {endpoint: "grpc://localhost:9001"}
  actors:
    - {name: ann, actor_class: playr, endpoint: "cogment://client"}
    - {name: ben, actor_class: judge, endpoint: "cogment://client"}
    - {name: cem, actor_class: zebra, endpoint: "cogment://client"}
"""


def warned(path: Path, caplog: pytest.LogCaptureFixture, **specs: Spec | None) -> list[str]:
    settings = ParamsSettings(path, None, hooks=False, discovery=True, datastore=True)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "trio_cogment.cli"):
        warn_of_unknown_classes(settings, load_default_params(settings, None), specs)
    return [record.getMessage() for record in caplog.records]


def test_classes_that_the_project_file_beside_it_lacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its protos are not looked at: that would need a compiler."""
    params = tmp_path / "params.yaml"
    params.write_text(PARAMS)
    assert warned(params, caplog) == []
    project = tmp_path / "cogment.yaml"
    project.write_text(PROJECT)
    (tmp_path / "game.proto").write_text("not even a proto")
    assert warned(params, caplog) == [
        f"--params: {params}: trial_params.actors[0].actor_class: actor 'ann' has the class 'playr', which {project} "
        "does not declare; did you mean 'player'?",
        f"--params: {params}: trial_params.actors[2].actor_class: actor 'cem' has the class 'zebra', which {project} "
        "does not declare; expected one of player, judge",
    ]


def test_classes_that_the_file_itself_lacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    params = tmp_path / "cogment.yaml"
    params.write_text(PROJECT + PARAMS)
    (tmp_path / "game.proto").write_text("")
    (ann, cem) = warned(params, caplog)
    assert ("'ann'" in ann, "'cem'" in cem) == (True, True)


def test_classes_of_the_types_that_flags_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    params = tmp_path / "params.yaml"
    params.write_text(PARAMS)
    spec = Spec((ActorClass("playr"), ActorClass("judge"), ActorClass("zebra")))
    assert warned(params, caplog, web=spec, trainer=None) == []
    found = warned(params, caplog, web=RL_SPEC)
    assert [line.partition("actor '")[2][:3] for line in found] == ["ann", "ben", "cem"]
    assert found[0].endswith("has the class 'playr', which web does not declare; did you mean 'player'?")


def test_types_that_have_a_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    params = tmp_path / "params.yaml"
    params.write_text(f"spec: rl\n{PARAMS}")
    assert len(warned(params, caplog)) == 3


def test_a_project_file_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    params = tmp_path / "params.yaml"
    params.write_text(PARAMS)
    (tmp_path / "cogment.yaml").write_text("actor_class: []")
    (line,) = warned(params, caplog)
    assert line.startswith(
        f"--params: {params}: its actor classes are not checked: {tmp_path / 'cogment.yaml'}: line 1"
    )
