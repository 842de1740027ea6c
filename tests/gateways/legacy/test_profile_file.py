"""Profiles as files: the section `legacy`, and the project files of the legacy API."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.gateways.legacy.profile_file import load_profile

PROTO = """
syntax = "proto3";
package data;
message Config { int32 size = 1; }
message Seen { int32 x = 1; repeated int32 ys = 2; }
message Change { int32 by = 1; }
message Act { int32 a = 1; }
"""
CODE = """
def add(observation, delta):
    observation.x += delta.by
    return observation
"""
TODAY = """
import: {proto: [data.proto]}
environment: {config_type: data.Config}
actor_classes:
  - {name: plane, action: {space: data.Act}, observation: {space: data.Seen}}
  - {name: drone, action: {space: data.Act}, observation: {space: data.Seen}}
"""
#: As in a project of that time.
OLD = """
import:
  proto:
    - data.proto
  python:
    - old_deltas
commands: {build: make}
trial:
  config_type: data.Config
  pre_hooks:
    - grpc://hooks:9002
datalog:
  type: grpc
  url: logs:9003
environment:
  config_type: data.Config
actor_classes:
  - id: plane
    action:
      space: data.Act
    observation:
      space: data.Seen
      delta: data.Change
      delta_apply_fn:
        python: old_deltas.add
    feedback:
      space: data.Act
  - id: drone
    config_type: data.Config
    action:
      space: data.Act
    observation:
      space: data.Seen
trial_params:
  trial_config: {size: 1}
  environment:
    endpoint: grpc://env:9000
    config: {size: 3}
  actors:
    - {actor_class: drone, endpoint: "drones:9001", config: {size: 4}}
    - {actor_class: plane, endpoint: human}
    - {actor_class: drone, endpoint: grpc://drones:9001}
    - {actor_class: plane, endpoint: cogment://discover}
"""


def project(folder: Path, text: str) -> Path:
    (folder / "data.proto").write_text(PROTO)
    (folder / "old_deltas.py").write_text(CODE)
    path = folder / "cogment.yaml"
    path.write_text(text)
    return path


def test_a_project_of_today_needs_no_section(tmp_path: Path) -> None:
    profile = load_profile(project(tmp_path, TODAY))
    assert profile.classes == ("plane", "drone")
    assert profile.params is None
    assert (profile.reward_every_tick, profile.on_agent_error, profile.call_timeout_seconds) == (False, "fail", 0)
    # Without another type of deltas a delta is whole.
    assert profile.deltas["plane"](b"before", b"after") == b"after"
    assert profile.spec.environment_config is not None


def test_the_section_of_the_guide(tmp_path: Path) -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "legacy.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^```yaml\n(legacy:\n.*?)^```", guide, re.MULTILINE | re.DOTALL)
    path = project(tmp_path, TODAY + section)
    (tmp_path / "data.proto").write_text(f"{PROTO}message DroneDelta {{ int32 by = 1; }}\n")
    (tmp_path / "deltas.py").write_text(CODE.replace("def add", "def apply_drone"))
    profile = load_profile(path)
    assert profile.classes == ("plane", "drone")
    assert set(profile.deltas) == {"plane", "drone"}
    assert profile.clients == ("ann",)


def test_a_section_with_everything(tmp_path: Path) -> None:
    section = """
legacy:
  classes: [drone, plane]
  deltas:
    plane: merge
    drone: {type: data.Change, apply: "old_deltas:add"}
  clients: [ann]
  names: {plane: [ann, ben]}
  reward_every_tick: true
  on_agent_error: empty
  call_timeout_seconds: 2.5
  end_timeout_seconds: 1
  pre_trial_hooks: ["legacy://hook:1", "legacy://[::1]:2"]
  datalog: legacy://log:1
trial_params:
  environment: {endpoint: "legacy://env:1"}
  actors:
    - {actor_class: plane, endpoint: "cogment://client"}
    - {actor_class: plane, endpoint: "grpc://h:1"}
    - {actor_class: plane, endpoint: "legacy://h:1"}
    - {name: eve, actor_class: drone, endpoint: "legacy://h:1"}
"""
    profile = load_profile(project(tmp_path, TODAY + section).parent)
    seen, change = (profile.spec.message(f"data.{name}") for name in ("Seen", "Change"))
    assert profile.classes == ("drone", "plane")
    merged = profile.deltas["plane"](seen(x=1, ys=[1]).SerializeToString(), seen(x=2, ys=[2]).SerializeToString())
    assert seen.FromString(merged) == seen(x=2, ys=[1, 2])
    added = profile.deltas["drone"](seen(x=5).SerializeToString(), change(by=3).SerializeToString())
    assert seen.FromString(added) == seen(x=8)
    assert (profile.clients, dict(profile.names)) == (("ann",), {"plane": ("ann", "ben")})
    assert (profile.reward_every_tick, profile.on_agent_error) == (True, "empty")
    assert (profile.call_timeout_seconds, profile.end_timeout_seconds) == (2.5, 1.0)
    assert (profile.pre_trial_hooks, profile.datalog) == (("legacy://hook:1", "legacy://[::1]:2"), "legacy://log:1")
    assert profile.params is not None
    assert [actor.name for actor in profile.params.actors] == ["ann", "ben", "plane_2", "eve"]
    # In a file of today grpc:// is a server of today.
    assert [actor.endpoint for actor in profile.params.actors][1:3] == ["grpc://h:1", "legacy://h:1"]


def test_a_project_file_of_that_time_is_read_as_it_is(tmp_path: Path) -> None:
    profile = load_profile(project(tmp_path, OLD))
    assert profile.classes == ("plane", "drone")
    params = profile.params
    assert params is not None
    assert [(actor.name, actor.actor_class, actor.endpoint) for actor in params.actors] == [
        ("drone_0", "drone", "legacy://drones:9001"),
        ("plane_0", "plane", "cogment://client"),
        ("drone_1", "drone", "legacy://drones:9001"),
        ("plane_1", "plane", "cogment://discover"),
    ]
    config = profile.spec.message("data.Config")
    assert params.environment.endpoint == "legacy://env:9000"
    assert params.datalog.endpoint == "legacy://logs:9003"
    assert profile.pre_trial_hooks == ("legacy://hooks:9002",)
    assert config.FromString(params.environment.config.content).size == 3
    assert config.FromString(params.actors[0].config.content).size == 4
    assert config.FromString(params.trial_config.content).size == 1
    seen, change = (profile.spec.message(f"data.{name}") for name in ("Seen", "Change"))
    added = profile.deltas["plane"](None, change(by=3).SerializeToString())
    assert seen.FromString(added) == seen(x=3)
    assert profile.deltas["drone"](b"before", b"after") == b"after"


def test_a_section_in_a_file_of_that_time(tmp_path: Path) -> None:
    section = "legacy: {names: {drone: [d1, d2]}, deltas: {plane: {type: data.Seen, apply: replace}}}\n"
    profile = load_profile(project(tmp_path, OLD + section))
    assert profile.params is not None
    assert [actor.name for actor in profile.params.actors] == ["d1", "plane_0", "d2", "plane_1"]
    assert profile.deltas["plane"](b"before", b"after") == b"after"


@pytest.mark.parametrize("rule", ["replace", "merge"])
def test_a_delta_of_another_type_is_never_taken_for_an_observation(tmp_path: Path, rule: str) -> None:
    path = project(tmp_path, OLD + f"legacy: {{deltas: {{plane: {rule}}}}}\n")
    expected = f"line 44: legacy.deltas.plane: only deltas of the type of observations can be {rule}d"
    with pytest.raises(InvalidArgumentError, match=re.escape(expected)):
        load_profile(path)


def test_the_data_log_of_the_parameters_comes_first(tmp_path: Path) -> None:
    old = OLD.replace("trial_params:\n", 'trial_params:\n  datalog: {endpoint: "cogment://discover"}\n')
    params = load_profile(project(tmp_path, old)).params
    assert params is not None
    assert params.datalog.endpoint == "cogment://discover"


def test_a_delta_type_without_a_function_has_no_rule(tmp_path: Path) -> None:
    text = OLD.replace("      delta_apply_fn:\n        python: old_deltas.add\n", "")
    assert set(load_profile(project(tmp_path, text)).deltas) == {"drone"}


def test_classes_without_a_project(tmp_path: Path) -> None:
    path = tmp_path / "legacy.yaml"
    path.write_text("legacy: {classes: [a, b], deltas: {a: replace}}\n")
    profile = load_profile(path)
    assert (profile.classes, set(profile.deltas)) == (("a", "b"), {"a"})


def test_what_a_function_raises_is_an_error_of_the_delta(tmp_path: Path) -> None:
    profile = load_profile(project(tmp_path, OLD))
    (tmp_path / "old_deltas.py").write_text("")
    with pytest.raises(RemoteProtocolError, match=r"delta: 1 bytes, not a valid data\.Change"):
        profile.deltas["plane"](None, b"\x00")


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("legacy: {clases: [plane]}", "line 7: legacy: unknown key 'clases'; did you mean 'classes'?"),
        ("legacy: [1]", "line 7: legacy: expected a mapping, got a list"),
        ("legacy:\n  classes: [plane]", "line 8: legacy.classes: expected all actor classes, 'drone' is missing"),
        ("legacy:\n  classes:\n  - ship", "line 9: legacy.classes[0]: expected an actor class ('plane', 'drone')"),
        ("legacy:\n  classes:\n  - plane\n  - plane", "line 10: legacy.classes[1]: the class 'plane' is there twice"),
        ("legacy:\n  deltas:\n    ship: merge", "line 9: legacy.deltas: expected an actor class"),
        (
            "legacy:\n  deltas:\n    plane: append",
            "line 9: legacy.deltas.plane: expected replace, merge or module",
        ),
        ("legacy:\n  deltas:\n    plane: no:where", "line 9: legacy.deltas.plane: expected replace, merge or module:"),
        ("legacy:\n  deltas:\n    plane: old_deltas:no", "the module 'old_deltas' has no function 'no'"),
        ("legacy:\n  deltas:\n    plane: {type: data.Change}", "line 9: legacy.deltas.plane: it has no 'apply'"),
        (
            "legacy:\n  deltas:\n    plane:\n      type: data.No\n      apply: merge",
            "line 10: legacy.deltas.plane.type: there is no message 'data.No'",
        ),
        (
            "legacy:\n  deltas:\n    plane:\n      type: data.Change\n      apply: merge",
            "line 11: legacy.deltas.plane.apply: only deltas of the type of observations can be merged",
        ),
        ("legacy:\n  names:\n    ship: [a]", "line 9: legacy.names: expected an actor class"),
        ("legacy:\n  names:\n    plane: [a,\n      a]", "line 10: legacy.names.plane[1]: expected different names"),
        (
            "legacy:\n  reward_every_tick: maybe",
            "line 8: legacy.reward_every_tick: expected true or false, got 'maybe'",
        ),
        ("legacy:\n  on_agent_error: x", "line 8: legacy.on_agent_error: expected fail or empty, got 'x'"),
        ("legacy:\n  call_timeout_seconds: -1", "line 8: legacy.call_timeout_seconds: expected seconds, 0 or more"),
        ("legacy:\n  end_timeout_seconds: nan", "line 8: legacy.end_timeout_seconds: expected seconds, 0 or more"),
        ("legacy:\n  datalog: log:1", "line 8: legacy.datalog: expected legacy://host:port, got 'log:1'"),
        (
            "legacy:\n  pre_trial_hooks:\n  - legacy://h:1\n  - grpc://h:1",
            "line 10: legacy.pre_trial_hooks[1]: expected legacy://host:port, got 'grpc://h:1'",
        ),
        (
            "legacy:\n  clients: [ann]\ntrial_params: {actors: [{name: bob, actor_class: plane}]}",
            "line 8: legacy.clients: the trial_params have no client actor 'ann'",
        ),
        (
            "trial_params:\n  actors:\n  - {actor_class: plane}\n  - {actor_class: ship}",
            "line 10: trial_params.actors[1].actor_class: expected an actor class ('plane', 'drone'), got 'ship'",
        ),
    ],
)
def test_mistakes_in_a_file_of_today(tmp_path: Path, section: str, expected: str) -> None:
    path = project(tmp_path, TODAY + section + "\n")
    with pytest.raises(InvalidArgumentError, match=re.escape(expected)) as caught:
        load_profile(path)
    assert str(caught.value).startswith(f"{path}: line ")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("endpoint: human", "endpoint: robot", "line 41: trial_params.actors[1].endpoint: expected human or host:port"),
        ("grpc://env:9000", "human", "line 37: trial_params.environment.endpoint: expected host:port, got 'human'"),
        ("old_deltas.add", "old_deltas.sub", "line 25: actor_classes[0].observation.delta_apply_fn.python: expected"),
        ("delta: data.Change", "delta: data.None", "line 23: actor_classes[0].observation.delta: there is no message"),
        ("  - id: drone", "  - id: plane", "line 28: actor_classes[1].name: there are two actor classes 'plane'"),
        ("actor_class: plane", "actor_class: ship", "line 41: trial_params.actors[1].actor_class: expected an actor"),
        ("config: {size: 3}", "config: {sise: 3}", "line 38: trial_params.environment.config: unknown key 'sise'"),
        (
            "  environment:\n    endpoint: grpc://env:9000\n    config: {size: 3}\n",
            "",
            "expected host:port, got nothing",
        ),
        ("grpc://hooks:9002", "grpc://hooks", "line 11: trial.pre_hooks[0]: expected host:port, got 'grpc://hooks'"),
        ("url: logs:9003", "url: cogment://client", "line 14: datalog.url: expected host:port"),
        ("  url: logs:9003\n", "", "line 13: datalog: it has no 'url'"),
        ("trial_params:", "trial_parms:", "the file: unknown key 'trial_parms'"),
    ],
)
def test_mistakes_in_a_file_of_that_time(tmp_path: Path, old: str, new: str, expected: str) -> None:
    path = project(tmp_path, OLD.replace(old, new, 1))
    with pytest.raises(InvalidArgumentError, match=re.escape(expected)) as caught:
        load_profile(path)
    assert str(caught.value).startswith(f"{path}: line ")


def test_a_file_without_classes(tmp_path: Path) -> None:
    path = tmp_path / "cogment.yaml"
    path.write_text("# nothing\n")
    with pytest.raises(InvalidArgumentError, match=r"legacy\.classes: expected the actor classes"):
        load_profile(path)
