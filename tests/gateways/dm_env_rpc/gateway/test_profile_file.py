"""Profiles as files: what they may say, and mistakes with their lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateways.dm_env_rpc.gateway.projects import PROTO, SPEC_FILE
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.gateways.dm_env_rpc import DM_ENV_RPC_SPEC
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import ClassMapping, FieldAnnotation
from trio_cogment.gateways.dm_env_rpc.gateway.profile_file import load_profile

PARAMS = """
trial_params:
  max_steps: 7
  environment: {endpoint: "grpc://localhost:1", config: {stock: 3}}
  actors:
    - {name: anna, actor_class: clerk, endpoint: "cogment://client"}
    - {name: bert, actor_class: buyer, endpoint: "cogment://client"}
"""


CLASSES = "dm_env_rpc:\n  classes:\n    clerk:\n      actions:\n        what: "


def written(folder: Path, **files: str) -> Path:
    """Write files by their names without `.yaml`; return the last one."""
    (folder / "data.proto").write_text(PROTO)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{list(files)[-1]}.yaml"


def test_a_project_file_is_a_profile(tmp_path: Path) -> None:
    found = load_profile(written(tmp_path, cogment=SPEC_FILE + PARAMS))
    assert list(found.templates) == ["default"]
    template = found.templates["default"]
    assert (template.params.max_steps, list(template.slots)) == (7, ["anna", "bert"])
    kind: Any = found.spec.environment_config
    assert kind.FromString(template.params.environment.config.content) == kind(stock=3)


def test_actors_that_are_left_to_other_clients(tmp_path: Path) -> None:
    section = "dm_env_rpc: {other_clients: [bert]}\n"
    found = load_profile(written(tmp_path, cogment=SPEC_FILE + PARAMS + section))
    assert list(found.templates["default"].slots) == ["anna"]
    section = "dm_env_rpc: {other_clients: [bert], templates: {one: {params: p.yaml, other_clients: [anna]}}}\n"
    found = load_profile(written(tmp_path, p=PARAMS, cogment=SPEC_FILE + section))
    assert list(found.templates["one"].slots) == ["bert"]
    with pytest.raises(InvalidArgumentError, match=r"other_clients: expected some of 'anna', 'bert'; got 'carl'"):
        load_profile(written(tmp_path, cogment=SPEC_FILE + PARAMS + "dm_env_rpc: {other_clients: [carl]}\n"))


def test_a_file_with_templates(tmp_path: Path) -> None:
    text = """
dm_env_rpc:
  required_settings: [seed, max_steps]
  seed_field: maybe
  policies: {start_when: first, step_timeout_seconds: 2.5, presence: true, on_leave: autopilot}
  templates:
    long: {params: params.yaml}
    short:
      policies: {start_when: 2, on_leave: vacate}
      trial_params:
        max_steps: 2
        actors:
          - {name: carl, actor_class: clerk, endpoint: "cogment://client", config: {speed: 4}}
          - {name: dora, actor_class: clerk, endpoint: "cogment://client"}
"""
    found = load_profile(written(tmp_path, cogment=SPEC_FILE, params=PARAMS, profile=text))
    assert (found.required_settings, found.seed_field) == (("seed", "max_steps"), "maybe")
    long, short = found.templates["long"], found.templates["short"]
    assert (long.params.max_steps, long.start_when, long.on_leave) == (7, "first", "autopilot")
    assert (short.params.max_steps, short.start_when, short.on_leave) == (2, 2, "vacate")
    assert (short.step_timeout_seconds, short.presence, short.params.max_inactivity) == (2.5, True, 30)
    kind = found.spec.actor_class("clerk").config
    assert kind is not None
    assert kind.FromString(short.params.actors[0].config.content) == kind(speed=4)


CLIENT = 'trial_params: {actors: [{name: a, actor_class: player, endpoint: "cogment://client"}]}\n'


def test_types_of_its_own(tmp_path: Path) -> None:
    assert load_profile(written(tmp_path, a=CLIENT)).spec.environment_config is None
    assert load_profile(written(tmp_path, a=CLIENT + "dm_env_rpc: {spec: rl}")).spec is RL_SPEC
    assert load_profile(written(tmp_path, a=CLIENT + "dm_env_rpc: {spec: dm_env_rpc}")).spec is DM_ENV_RPC_SPEC
    (tmp_path / "types").mkdir()
    written(tmp_path / "types", cogment=SPEC_FILE)
    found = load_profile(written(tmp_path, a=CLIENT.replace("player", "clerk") + "dm_env_rpc: {spec: types}"))
    assert list(found.spec.names()) == ["clerk", "buyer"]


@pytest.mark.parametrize("name", ["cogment.yaml", "cogment.yml"])
def test_types_of_the_project_beside_it(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, a=CLIENT.replace("player", "clerk"))
    (tmp_path / name).write_text(SPEC_FILE)
    assert list(load_profile(path).spec.names()) == ["clerk", "buyer"]


@pytest.mark.parametrize("text", ["true", "false"])
def test_a_policy_that_is_a_flag(text: str, tmp_path: Path) -> None:
    section = f"dm_env_rpc: {{policies: {{presence: {text}}}}}\n"
    found = load_profile(written(tmp_path, cogment=SPEC_FILE + PARAMS + section))
    assert found.templates["default"].presence is (text == "true")


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("dm_env_rpc: 3", 1, "dm_env_rpc: expected a mapping, got '3'"),
        ("dm_env_rpc: {template: 3}", 1, "unknown key 'template'; did you mean 'templates'?"),
        ("dm_env_rpc:\n  spec: nowhere.yaml", 2, "dm_env_rpc.spec: expected rl, dm_env_rpc or the path of a project"),
        ("dm_env_rpc:\n  templates: []", 2, "dm_env_rpc.templates: expected a mapping, got a list"),
        ("dm_env_rpc:\n  templates: {}", 2, "dm_env_rpc: templates: expected at least one, got none"),
        (
            "dm_env_rpc:\n  templates:\n    a: {}",
            3,
            "templates.a: expected one of params (a file) and trial_params, got n",
        ),
        (
            "dm_env_rpc:\n  templates:\n    a: {params: x.yaml, trial_params: {max_steps: 3}}",
            3,
            "expected one of params (a file) and trial_params, got both",
        ),
        ("dm_env_rpc:\n  templates:\n    a: {params: x.yaml}", 3, "templates.a.params: "),
        (
            "dm_env_rpc:\n  templates:\n    a:\n      trial_params:\n        max_step: 3",
            5,
            "dm_env_rpc.templates.a.trial_params: unknown key 'max_step'; did you mean 'max_steps'?",
        ),
        (
            "dm_env_rpc:\n  templates:\n    a: {trial_params: {max_steps: 3}}",
            3,
            "templates.a: params: expected an actor with the endpoint cogment://client, got none",
        ),
        ("dm_env_rpc:\n  policies:\n    on_leave: stay", 3, "expected one of end, autopilot, vacate, got 'stay'"),
        ("dm_env_rpc:\n  policies:\n    on_leav: end", 3, "unknown key 'on_leav'; did you mean 'on_leave'?"),
        ("dm_env_rpc:\n  policies:\n    presence: yes", 3, "dm_env_rpc.policies.presence: expected true or false, got"),
        ("dm_env_rpc:\n  policies:\n    step_timeout_seconds: -1", 3, "expected seconds, 0 or more, got '-1'"),
        ("dm_env_rpc:\n  policies:\n    step_timeout_seconds: x", 3, "expected seconds, 0 or more, got 'x'"),
        ("dm_env_rpc:\n  policies:\n    start_when: some", 3, "expected all, first or a number of actors, got"),
        (
            CLIENT + "dm_env_rpc:\n  policies:\n    start_when: 2",
            1,
            "start_when: expected 'all', 'first' or 1 to 1",
        ),
        (
            "dm_env_rpc:\n  classes:\n    clerk: {layer: magic}",
            3,
            "classes.clerk.layer: expected one of auto, native, reflecti",
        ),
        ("dm_env_rpc:\n  classes:\n    clerk: {action: {}}", 3, "unknown key 'action'; did you mean 'actions'?"),
        (CLASSES + "{shap: [1]}", 5, "classes.clerk.actions.what: unknown key 'shap'; did you mean 'shape'?"),
        (CLASSES + "{shape: [1, x]}", 5, "what.shape[1]: expected a number, got 'x'"),
        (CLASSES + "{shape: [1.5]}", 5, "what.shape[0]: expected a length, or -1 for any"),
        (CLASSES + "{shape: [-2]}", 5, "what.shape[0]: expected a length, or -1 for any"),
        (CLASSES + "{shape: 3}", 5, "what.shape: expected a list, got '3'"),
        (CLASSES + "{minimum: nan}", 5, "what.minimum: expected a number, got 'nan'"),
        (CLASSES + "{maximum: [1, [2, many]]}", 5, "what.maximum[1][1]: expected a number, got 'many'"),
        (CLASSES + "{skip: 1}", 5, "what.skip: expected true or false, got '1'"),
        ("dm_env_rpc:\n  required_settings: seed", 2, "dm_env_rpc.required_settings: expected a list, got 'seed'"),
        (
            SPEC_FILE + PARAMS + "dm_env_rpc:\n  required_settings: [sed]",
            (SPEC_FILE + PARAMS).count("\n") + 2,
            "dm_env_rpc: required_settings: no world has a setting 'sed'",
        ),
        (
            "dm_env_rpc: {}",
            None,
            "trial_params: params: expected an actor with the endpoint cogment://client",
        ),
    ],
)
def test_mistakes_have_their_lines(tmp_path: Path, text: str, line: int | None, expected: str) -> None:
    path = written(tmp_path, profile=text)
    with pytest.raises(InvalidArgumentError) as caught:
        load_profile(path)
    assert str(caught.value).startswith(f"{path}: " + ("" if line is None else f"line {line}: "))
    assert expected in str(caught.value)


def test_a_configuration_that_is_not_of_its_type(tmp_path: Path) -> None:
    text = (
        "dm_env_rpc:\n  templates:\n    a:\n      trial_params:\n"
        '        environment: {config: {content: "/w=="}}\n'
        '        actors: [{name: a, actor_class: clerk, endpoint: "cogment://client"}]\n'
    )
    with pytest.raises(InvalidArgumentError, match=r"dm_env_rpc: template 'a': environment\.config: expected a shop"):
        load_profile(written(tmp_path, cogment=SPEC_FILE, profile=text))


def test_annotations_of_classes(tmp_path: Path) -> None:
    text = (
        PARAMS
        + """
dm_env_rpc:
  classes:
    clerk: {layer: raw}
    buyer:
      actions:
        what: {minimum: -1, maximum: 5.0, dtype: int8}
      observations:
        what: {skip: true}
"""
    )
    found = load_profile(written(tmp_path, cogment=SPEC_FILE, profile=text))
    assert found.templates["default"].classes == {
        "clerk": ClassMapping(layer="raw"),
        "buyer": ClassMapping(
            actions={"what": FieldAnnotation(minimum=-1, maximum=5.0, dtype="int8")},
            observations={"what": FieldAnnotation(skip=True)},
        ),
    }


def test_annotations_of_one_template(tmp_path: Path) -> None:
    trial = "trial_params: {actors: [{name: a, actor_class: clerk, endpoint: cogment://client}]}"
    text = f"""
dm_env_rpc:
  classes: {{clerk: {{layer: raw}}, buyer: {{layer: raw}}}}
  templates:
    one:
      classes: {{clerk: {{actions: {{what: {{minimum: [[1, 2], [3, 4]], shape: [2, 2]}}}}}}}}
      {trial}
    two: {{{trial}}}
"""
    with pytest.raises(InvalidArgumentError, match=r"classes\.clerk\.actions: what: shape: expected none"):
        load_profile(written(tmp_path, cogment=SPEC_FILE, profile=text))
    found = load_profile(
        written(tmp_path, cogment=SPEC_FILE, profile=text.replace("[[1, 2], [3, 4]], shape: [2, 2]", "1"))
    )
    one, two = (found.templates[name].classes for name in ("one", "two"))
    assert (one["clerk"].actions, one["buyer"].layer) == ({"what": FieldAnnotation(minimum=1)}, "raw")
    assert two == {name: ClassMapping(layer="raw") for name in ("clerk", "buyer")}
