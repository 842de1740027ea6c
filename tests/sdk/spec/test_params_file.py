"""Parameter files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.wrappers_pb2 import UInt32Value

from trio_cogment import load_spec
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.sdk.spec import Spec, declared_classes, load_params
from trio_cogment.sdk.spec._message_fields import READERS
from trio_cogment.sdk.spec._params_file import DEFAULT_MAX_INACTIVITY_SECONDS


def written(folder: Path, text: str) -> Path:
    path = folder / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_whole_project_file_works(tmp_path: Path) -> None:
    params = load_params(
        written(
            tmp_path,
            """
import: {proto: [data.proto]}
trial_params:
  max_steps: 10
  nb_buffered_ticks: 3
  properties: {answer: no, hex: 0x10}
  datalog: {endpoint: grpc://localhost:9003, exclude_fields: [messages]}
  environment:
    endpoint: grpc://localhost:9001
    implementation:
    config: {content: YQ==}
  actors:
    - {name: a, actor_class: p, endpoint: cogment://client, optional: yes, response_timeout: 0.5}
    - {name: b, actorClass: p, initialConnectionTimeout: 2, optional: F}
""",
        )
    )
    assert params.max_steps == 10
    assert params.nb_buffered_ticks == 3
    assert dict(params.properties) == {"answer": "no", "hex": "0x10"}
    assert list(params.datalog.exclude_fields) == ["messages"]
    assert params.environment.config.content == b"a"
    assert params.environment.implementation == ""
    first, second = params.actors
    assert (first.optional, first.response_timeout) == (True, 0.5)
    assert (second.optional, second.initial_connection_timeout) == (False, 2)
    assert params.max_inactivity == DEFAULT_MAX_INACTIVITY_SECONDS


def test_ticks_at_a_rate(tmp_path: Path) -> None:
    text = "trial_params: {environment: {tick_hz: 60}, actors: [{name: a, observe_every: 5, holdAction: yes}]}"
    params = load_params(written(tmp_path, text))
    assert (params.environment.tick_hz, params.actors[0].observe_every, params.actors[0].hold_action) == (60, 5, True)


@pytest.mark.parametrize("key", ["max_inactivity", "maxInactivity"])
def test_explicit_inactivity_of_zero_stays(tmp_path: Path, key: str) -> None:
    assert load_params(written(tmp_path, f"trial_params: {{{key}: 0}}")).max_inactivity == 0


@pytest.mark.parametrize("text", ["", "other: 1", "trial_params:", "trial_params: {datalog: , actors: }"])
def test_nothing_said_is_nothing_set(tmp_path: Path, text: str) -> None:
    params = load_params(written(tmp_path, text))
    params.max_inactivity = 0
    assert not params.ListFields()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("trial_params: {bogus: 1}", "line 1: trial_params: unknown key 'bogus'; expected one of actors, "),
        ("trial_params:\n  max_step: 1\n", "line 2: trial_params: unknown key 'max_step'; did you mean 'max_steps'?"),
        ("trial_params:\n  actors:\n    - nam: 1\n", "line 3: trial_params.actors[0]: unknown key 'nam'; did you mean"),
        ("trial_params: {max_steps: 1.5}", "max_steps"),
        ("trial_params: {max_steps: 0x10}", "max_steps"),
        ("trial_params: {max_steps: -1}", "max_steps"),
        ("trial_params: {actors: [{name: a, optional: on}]}", "optional"),
        ("trial_params: {actors: {name: a}}", "actors"),
        ("trial_params: [1]", "trial_params"),
        ("- 1", "mapping"),
        ("a: [", "YAML"),
        ("a: b: c", "YAML"),
        ("trial_params: {max_steps: 1, max_steps: 2}", "max_steps"),
        ("trial_params: {maxSteps: 1, max_steps: 2}", "line 1: trial_params.max_steps: given twice, in two spellings"),
        ("trial_params: &x {environment: *x}", "trial_params.environment: unknown key 'environment'"),
        ("trial_params: &x {<<: *x}", "trial_params: it is merged into itself"),
        ("&x {<<: [&y {<<: *x}]}", "it is merged into itself"),
        ("trial_params: {[a]: 1}", "expected a name as the key, got a list"),
        ("trial_params: {max_steps: {a: 1}}", "trial_params.max_steps: expected one value, got a mapping"),
        ("trial_params: {max_steps: 1e3}", "max_steps: expected a decimal integer from 0 to 4294967295, got '1e3'"),
        ("trial_params: {max_steps: 1_000}", "got '1_000'"),
        ("trial_params: {max_steps: 4294967296}", "got '4294967296'"),
        ("trial_params: {max_steps: " + "9" * 5000 + "}", "expected a decimal integer"),
        ("trial_params: {actors: [{name: a}, ]}\n---\n", "not YAML"),
        ("trial_params:\n  actors:\n    -\n", "line 3: trial_params.actors[0]: expected a mapping, got nothing"),
        ("trial_params: {actors: [{response_timeout: nan}]}", "response_timeout: expected a number, got 'nan'"),
        ("trial_params: {actors: [{response_timeout: 1e39}]}", "response_timeout: expected a number, got '1e39'"),
        ("trial_params: {trial_config: {content: ab!}}", "trial_params.trial_config.content: expected base64, got"),
        ("trial_params: {trial_config: YQ==}", "trial_params.trial_config: expected a mapping, got 'YQ=='"),
        ("trial_params: {datalog: {exclude_fields: messages}}", "exclude_fields: expected a list, got 'messages'"),
        ("a: \x00", "not YAML"),
        ("trial_params: " + "[" * 5000, "nested too deeply"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, named: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidArgumentError) as caught:
        load_params(path)
    assert str(path) in str(caught.value)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("datalog: {type: grpc, url: h:1}", "line 1: datalog: is the layout of Cogment 1; now it is trial_params:"),
        (
            "trial:\n  pre_hooks: [grpc://h:1]",
            "line 2: trial.pre_hooks: is the layout of Cogment 1; now hooks are given",
        ),
        ("trial_params: {environment: {id: e}}", "trial_params.environment.id: is an old name of 'name'"),
        (
            "trial_params: {datalog: {url: h:1}}",
            "trial_params.datalog.url: is the layout of Cogment 1; now it is 'endp",
        ),
        ("trial_params: {datalog: {type: none}}", "trial_params.datalog.type: is the layout of Cogment 1; remove it"),
        ("trial_params: {datalog: {fields: {exclude: [a]}}}", "now it is 'exclude_fields', a list"),
    ],
)
def test_old_layouts_are_told_what_to_become(tmp_path: Path, text: str, advice: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load_params(written(tmp_path, text))
    assert advice in str(caught.value)


def test_what_is_passed_over_stays_passed_over(tmp_path: Path) -> None:
    text = "trial: {config_type: a.B, pre_hooks: []}\ndatalog:\ncommands: {run: x}\nactor_classes: [{name: p}]\n"
    assert load_params(written(tmp_path, text)).max_inactivity == DEFAULT_MAX_INACTIVITY_SECONDS


def test_the_blank_values_of_the_reference_documents(tmp_path: Path) -> None:
    text = """
trial_params:
  max_inactivity:
  max_steps: ~
  trial_config: {content: }
  datalog:
  properties: {flag: , quoted: "null", word: no}
  environment:
    implementation:
    endpoint: NULL
  actors:
    - name: "null"
      actor_class: ''
      implementation:
      default_action: {}
"""
    params = load_params(written(tmp_path, text))
    assert (params.max_steps, params.max_inactivity) == (0, DEFAULT_MAX_INACTIVITY_SECONDS)
    assert dict(params.properties) == {"flag": "", "quoted": "null", "word": "no"}
    assert params.environment.implementation == params.environment.endpoint == ""
    (actor,) = params.actors
    assert (actor.name, actor.actor_class, actor.implementation) == ("null", "", "")
    # A message that is there and empty is a default, or a configuration, all the same.
    assert actor.HasField("default_action")
    assert params.HasField("trial_config")
    assert not actor.HasField("config")
    assert not params.HasField("datalog")


def test_anchors_merges_and_block_scalars(tmp_path: Path) -> None:
    text = """
base: &base
  actor_class: p
  endpoint: &there grpc://localhost:9001
  response_timeout: 2.5
more: &more {optional: Y}
trial_params:
  environment: {endpoint: *there}
  properties:
    text: |
      two
      lines
  actors:
    - <<: [*base, *more]
      name: a
      response_timeout: 1
    - {<<: *base, name: b, config: {content: _-8}, default_action: {content: "YQ"}}
"""
    params = load_params(written(tmp_path, text))
    first, second = params.actors
    assert (first.actor_class, first.response_timeout, first.optional) == ("p", 1, True)
    assert (second.response_timeout, second.optional) == (2.5, False)
    assert (second.config.content, second.default_action.content) == (b"\xff\xef", b"a")
    assert params.environment.endpoint == first.endpoint == "grpc://localhost:9001"
    assert params.properties["text"] == "two\nlines\n"


def test_aliases_cannot_grow_without_end(tmp_path: Path) -> None:
    lines = ["a0: &a0 {max_steps: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 9)]
    lines.append("trial_params: *a8")
    with pytest.raises(InvalidArgumentError, match="more than 100000 values"):
        load_params(written(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize("spelling", ["TRUE", "t", "Yes", "y", "1"])
def test_spellings_of_true(tmp_path: Path, spelling: str) -> None:
    assert load_params(written(tmp_path, f"trial_params: {{actors: [{{optional: {spelling}}}]}}")).actors[0].optional


def test_signed_and_negative_integers(tmp_path: Path) -> None:
    params = load_params(written(tmp_path, "trial_params: {max_steps: +7, nb_buffered_ticks: -9223372036854775808}"))
    assert (params.max_steps, params.nb_buffered_ticks) == (7, -(2**63))


def test_every_field_of_the_parameters_can_be_read() -> None:
    def types(descriptor: Any) -> Iterator[int]:
        for field in descriptor.fields:
            if field.message_type is None:
                yield field.type
            elif not field.message_type.GetOptions().map_entry:
                yield from types(field.message_type)

    assert set(types(TrialParams.DESCRIPTOR)) <= READERS.keys()


def test_missing_file_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="No such file"):
        load_params(tmp_path / "nowhere.yaml")
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgumentError, match="not YAML"):
        load_params(path)


# --- payloads by their fields ---

TYPES = """\
syntax = "proto3";
package game;
import "google/protobuf/timestamp.proto";

message World {
  enum Weather { SUN = 0; RAIN = 1; }
  message Place { double x = 1; repeated sint32 near_by = 2; }
  Weather weather = 1;
  map<int32, Place> places = 2;
  google.protobuf.Timestamp since = 3;
  oneof size { uint64 cells = 4; string name = 5; }
  bool is_round = 6;
  bytes seed = 7;
  repeated Place path = 8;
  map<string, Weather> forecast = 9;
}
message Rules { fixed32 rounds = 1; }
message Skill { float speed = 1; }
message Action { sfixed64 steps = 1; }
"""
PROJECT = """\
import: {proto: [game.proto]}
trial: {config_type: game.Rules}
environment: {config_type: game.World}
actor_classes:
  - {name: player, observation: {space: game.World}, action: {space: game.Action}, config_type: game.Skill}
  - {name: judge, observation: {space: game.World}, action: {space: game.Action}}
"""
PAYLOADS = """\
trial_params:
  trial_config: {rounds: 4}
  environment:
    config:
      weather: RAIN
      places: {1: {x: -1.5, nearBy: [1, -2]}, 2: {}}
      since: "2026-01-01T00:00:00Z"
      cells: 18446744073709551615
      isRound: yes
      seed: AQ==
      path: [{x: 1}]
      forecast: {monday: 1}
  actors:
    - {config: {speed: 0.5}, default_action: {steps: -3}, name: ann, actor_class: player}
    - {name: bob, actor_class: judge, default_action: {content: YQ==}}
"""


def project_with(folder: Path, params: str, *, separate: bool) -> Path:
    (folder / "game.proto").write_text(TYPES)
    (folder / "cogment.yaml").write_text(PROJECT if separate else PROJECT + params)
    return written(folder, params) if separate else folder / "cogment.yaml"


def test_types_are_found_in_a_project_file_of_the_legacy_api(tmp_path: Path) -> None:
    """`--legacy cogment.yaml --params params.yaml`: the project file beside the parameters is an old one."""
    path = project_with(tmp_path, PAYLOADS, separate=True)
    now = load_params(path)
    old = PROJECT.replace("- name:", "- id:").replace("{name: ", "{id: ")
    assert "id: player" in old
    (tmp_path / "cogment.yaml").write_text(old)
    assert load_params(path) == now
    assert declared_classes(path, named={}) == (str(tmp_path / "cogment.yaml"), ["player", "judge"])
    assert list(load_spec(tmp_path, legacy=True).names()) == ["player", "judge"]


@pytest.mark.parametrize("separate", [True, False])
def test_payloads_are_given_by_the_fields_of_their_types(tmp_path: Path, separate: bool) -> None:
    path = project_with(tmp_path, PAYLOADS, separate=separate)
    params = load_params(path)
    spec = load_spec(tmp_path)
    assert load_params(path, spec=spec) == params
    world = spec.message("game.World").FromString(params.environment.config.content)
    place = spec.message("game.World.Place")
    assert world == spec.message("game.World")(
        weather="RAIN",
        places={1: place(x=-1.5, near_by=[1, -2]), 2: place()},
        since={"seconds": 1767225600},
        cells=2**64 - 1,
        is_round=True,
        seed=b"\x01",
        path=[place(x=1)],
        forecast={"monday": 1},
    )
    assert spec.message("game.Rules").FromString(params.trial_config.content).rounds == 4
    ann, bob = params.actors
    assert spec.message("game.Skill").FromString(ann.config.content).speed == 0.5
    assert spec.message("game.Action").FromString(ann.default_action.content).steps == -3
    assert bob.default_action.content == b"a"
    assert not bob.HasField("config")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("weather: RAIN", "weather: SNOW", "config.weather: expected one of SUN, RAIN, got 'SNOW'"),
        ("weather: RAIN", "weather: 7", "expected one of SUN, RAIN, got '7'"),
        ("weather: RAIN", "wether: RAIN", "config: unknown key 'wether'; did you mean 'weather'?"),
        ("x: -1.5", "x: 1e999", "config.places.1.x: expected a number, got '1e999'"),
        ("{1: {x", "{one: {x", "config.places: expected a decimal integer from -2147483648 to 2147483647, got 'one'"),
        ("2026-01-01T", "2026-13-01T", "config.since: "),
        ("      seed:", "      name: x\n      seed:", "config: expected one of cells and name, got both"),
        ("rounds: 4", "rounds: -4", "trial_config.rounds: expected a decimal integer from 0 to 4294967295, got '-4'"),
        ("name: bob,", "name: bob, config: {speed: 1},", "declares no such type for the actor class 'judge'"),
        ("path: [{x: 1}]", "path: [1]", "config.path[0]: expected a mapping, got '1'"),
    ],
)
def test_wrong_fields_are_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert PAYLOADS.count(old) == 1
    path = project_with(tmp_path, PAYLOADS.replace(old, new), separate=True)
    with pytest.raises(InvalidArgumentError) as caught:
        load_params(path, spec=load_spec(tmp_path))
    assert str(caught.value).startswith(f"{path}: line ")
    assert expected in str(caught.value)


def test_fields_without_a_project(tmp_path: Path) -> None:
    path = written(tmp_path, PAYLOADS)
    with pytest.raises(InvalidArgumentError, match="trial_config: the type of 'rounds' is not known"):
        load_params(path)
    (tmp_path / "cogment.yml").write_text("environment: {config_typ: A}")
    with pytest.raises(InvalidArgumentError, match=r"cogment.yml: line 1: environment: unknown key 'config_typ'"):
        load_params(path)


WELL_KNOWN = """\
syntax = "proto3";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/duration.proto";
message Config {
  google.protobuf.Struct options = 1;
  google.protobuf.Int32Value limit = 2;
  repeated google.protobuf.StringValue names = 3;
  google.protobuf.Value anything = 4;
  google.protobuf.ListValue list = 5;
  google.protobuf.Duration pause = 6;
  Config inner = 7;
}
"""


def config_from(folder: Path, proto: str, text: str) -> Any:
    (folder / "c.proto").write_text(proto)
    path = folder / "cogment.yaml"
    path.write_text(
        "import: {proto: [c.proto]}\nenvironment: {config_type: Config}\n"
        f"trial_params:\n  environment:\n    config: {text}\n"
    )
    spec = load_spec(folder)
    return spec.message("Config").FromString(load_params(path, spec=spec).environment.config.content)


def test_messages_that_hold_one_value_or_anything(tmp_path: Path) -> None:
    """As in protobuf's JSON, and as YAML 1.2 reads plain scalars."""
    text = """{options: {a: 1, b: "1", c: [true, no, ~, {d: -1.5e3}], e: {}, f: 1e999}, limit: 5,
      names: [x, {value: y}, ""], anything: ann, list: [1, []], pause: 1.5s}"""
    found = MessageToDict(config_from(tmp_path, WELL_KNOWN, text))
    assert found == {
        "options": {"a": 1, "b": "1", "c": [True, "no", None, {"d": -1500}], "e": {}, "f": "1e999"},
        "limit": 5,
        "names": ["x", "y", ""],
        "anything": "ann",
        "list": [1, []],
        "pause": "1.500s",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{limit: many}", "config.limit: expected a decimal integer from -2147483648 to 2147483647, got 'many'"),
        ("{limit: [1]}", "config.limit: expected one value, got a list"),
        ("{options: [1]}", "config.options: expected a mapping, got a list"),
        ("{list: 1}", "config.list: expected a list, got '1'"),
        ("{options: {a: &a [*a]}}", "config: nested too deeply"),
        ("{inner: &a {inner: *a}}", "config: nested too deeply"),
        ("{inner: " * 110 + "{}" + "}" * 110, "config: nested too deeply"),
    ],
)
def test_wrong_values_of_them_are_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        config_from(tmp_path, WELL_KNOWN, text)
    assert expected in str(caught.value)


def test_a_required_field_that_is_missing_is_named(tmp_path: Path) -> None:
    proto = 'syntax = "proto2"; message Config { required Inner inner = 1; message Inner { required int32 x = 1; } }'
    with pytest.raises(InvalidArgumentError, match=r"line 5: .*config: it has no 'inner.x', which is required"):
        config_from(tmp_path, proto, "{inner: {}}")


SPEC_KEY = "spec: {}\ntrial_params: {{environment: {{config: {{value: 3}}}}}}\n"


def test_types_have_a_name(tmp_path: Path) -> None:
    named = {"numbers": lambda: Spec(environment_config=UInt32Value)}
    path = tmp_path / "params.yaml"
    path.write_text(SPEC_KEY.format("numbers"))
    assert load_params(path, named=named).environment.config.content == UInt32Value(value=3).SerializeToString()
    path.write_text(SPEC_KEY.format("letters"))
    with pytest.raises(InvalidArgumentError, match=r"line 1: spec: expected numbers or the path of a project file"):
        load_params(path, named=named)


def test_types_are_those_of_another_folder(tmp_path: Path) -> None:
    (tmp_path / "game").mkdir()
    (tmp_path / "game" / "data.proto").write_text('syntax = "proto3"; message Level { uint32 value = 1; }')
    (tmp_path / "game" / "cogment.yaml").write_text(
        "import: {proto: [data.proto]}\nenvironment: {config_type: Level}\n"
    )
    path = tmp_path / "params.yaml"
    path.write_text(SPEC_KEY.format("game/cogment.yaml"))
    assert load_params(path).environment.config.content == UInt32Value(value=3).SerializeToString()


@pytest.mark.parametrize("spelling", ["", "~", "null", "Null", "NULL"])
def test_spellings_of_null_say_nothing(tmp_path: Path, spelling: str) -> None:
    params = load_params(written(tmp_path, f"trial_params:\n  max_steps: {spelling}\n  environment: {spelling}\n"))
    assert not params.max_steps
    assert not params.environment.ByteSize()
