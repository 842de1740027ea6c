"""Projects: their file and their protos, and what is said about those that are broken."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.sdk.spec.projects import DATA, SPEC, project
from trio_cogment import (
    ActorSession,
    EnvironmentSession,
    EventType,
    Spec,
    actor_params,
    load_spec,
    open_platform,
    trial_params,
)
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.sdk.spec import encode
from trio_cogment.sdk.spec._project_file import ProjectFile, read_commands
from trio_cogment.sdk.spec._protoc import explained
from trio_cogment.sdk.spec._types import advice, resolve
from trio_cogment.sdk.spec.generation import python_modules, write_files
from trio_cogment.sdk.spec.project import Project
from trio_cogment.sdk.spec.yaml_file import MAX_BYTES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("project")).parent


@pytest.fixture(scope="module")
def spec(folder: Path) -> Spec:
    return load_spec(folder)


def refusal(path: Path) -> str:
    """Load a broken project; return what is said about it, without its folder."""
    with pytest.raises(InvalidArgumentError) as caught:
        load_spec(path)
    text = str(caught.value)
    assert "\n" not in text
    return text.replace(f"{path.parent}/", "")


def broken(folder: Path, text: str) -> str:
    """Return what is said about a cogment.yaml with this text, which needs no compiler to be refused."""
    path = folder / "cogment.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgumentError) as caught:
        ProjectFile(path)
    return str(caught.value).removeprefix(f"{path}: ")


def test_dotted_packages_nested_types_folders_and_public_imports(spec: Spec) -> None:
    player, judge = spec.actor_classes
    assert (player.name, judge.name) == ("player", "smart-judge")
    named = [player.observation, player.action, player.config, judge.observation, judge.action, judge.config]
    assert [kind and kind.DESCRIPTOR.full_name for kind in named] == [
        *("acme.game.Observation", "acme.game.Action", "acme.shared.Outer.Inner"),
        *("acme.game.Move", "acme.shared.Outer", None),
    ]
    assert spec.environment_config is spec.message("Plain")
    assert spec.trial_config is spec.message("acme.game.TrialConfig")
    inner = spec.message("acme.shared.Outer.Inner")(x=3)
    assert spec.message("acme.game.Observation")(inner=inner, counts={"a": 1}).inner.x == 3
    assert "acme.game.Observation.CountsEntry" not in spec.messages
    assert len(spec.messages) == len(list(spec.messages))


def test_well_known_types_go_both_ways(spec: Spec) -> None:
    observation = spec.message("acme.game.Observation")(seen_at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    observation.anything.Pack(Timestamp(seconds=7))
    found = Timestamp()
    assert observation.anything.Unpack(found)
    assert found.seconds == 7
    packed = AnyMessage()
    packed.Pack(observation)
    again = spec.message("acme.game.Observation")()
    assert packed.Unpack(again)
    assert again == observation
    assert again.seen_at.ToJsonString() == "2026-01-01T00:00:00Z"
    assert spec.message("google.protobuf.Timestamp") is Timestamp


WITH_STRUCT = """\
import: {proto: [data.proto, google/protobuf/struct.proto, common/deep/shared-types.proto]}
environment: {config_type: google.protobuf.Struct}
actor_classes:
  - name: player
    action: {space: google.protobuf.Value}
    observation: {space: acme.game.Observation}
"""


def test_protos_that_come_with_protobuf_can_be_named(tmp_path: Path) -> None:
    found = load_spec(project(tmp_path, WITH_STRUCT))
    assert found.environment_config is Struct
    assert found.actor_class("player").action is Value


def test_a_type_of_protobuf_whose_proto_is_not_named_says_which_to_add(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"line 5: .*; add 'google/protobuf/struct.proto' to import.proto"):
        load_spec(project(tmp_path, WITH_STRUCT.replace(" google/protobuf/struct.proto,", "")))
    with pytest.raises(InvalidArgumentError, match=r"there is no file 'google/protobuf/mine.proto'"):
        load_spec(project(tmp_path, WITH_STRUCT.replace("protobuf/struct", "protobuf/mine")))
    for name in ("google/protobuf/strct", "struct"):
        with pytest.raises(InvalidArgumentError, match=r"did you mean 'google/protobuf/struct.proto'\?"):
            load_spec(project(tmp_path, WITH_STRUCT.replace("google/protobuf/struct", name)))


def test_nothing_is_written_into_the_folder(tmp_path: Path) -> None:
    path = project(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    load_spec(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_two_projects_with_the_same_names(spec: Spec, tmp_path: Path) -> None:
    other = load_spec(project(tmp_path, data=DATA.replace("double x = 1;", "string y = 1;")))
    assert other.message("acme.game.Move")(y="there").y == "there"
    assert spec.message("acme.game.Move")(x=1.5).x == 1.5


def test_the_same_message_of_another_pool_is_taken(folder: Path, spec: Spec) -> None:
    again = load_spec(folder)
    move = again.message("acme.game.Move")(x=2)
    assert encode(move, spec.message("acme.game.Move"), "action") == move.SerializeToString()
    with pytest.raises(InvalidArgumentError, match="expected Move, got Plain"):
        encode(again.message("Plain")(), spec.message("acme.game.Move"), "action")


def test_message_that_does_not_exist(spec: Spec) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'Inner'; did you mean 'acme.shared.Outer.Inner'\?"):
        spec.message("Inner")
    with pytest.raises(InvalidArgumentError, match="was not loaded from a project file"):
        Spec().message("Inner")


def test_a_package_in_the_project_named_google_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "grpc_tools").mkdir()
    (tmp_path / "grpc_tools" / "__init__.py").write_text("raise SystemExit('taken')")
    assert load_spec(project(tmp_path)).message("Plain")


def test_without_protos_no_compiler_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    path = tmp_path / "cogment.yml"
    path.write_text("trial_params: {max_steps: 3}\nx-mine: 1\n")
    assert load_spec(tmp_path).actor_classes == ()
    path.write_text("")
    assert load_spec(path) == Spec()


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'trio-cogment\[generate\]'"):
        load_spec(project(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("acme.game.TrialConfig}", "acme.game.TrailConfig}", "line 3: trial.config_type: there is no message "),
        ("acme.game.Action}", "game.Action}", "did you mean 'acme.game.Action'?"),
        ("acme.game.Action}", "acme.game.Action.Kind}", "line 7: actor_classes[0].action.space: there is no message"),
    ],
)
def test_type_that_does_not_exist(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert expected in refusal(project(tmp_path, SPEC.replace(old, new)))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("data", DATA.replace("uint32 rounds = 1;", "uint32 rounds = 1"), 'data.proto:20:41: Expected ";".'),
        ("data", DATA.replace("repeated Move", "repeated Mive"), 'data.proto:12:12: "Mive" is not defined.'),
        (
            "data",
            DATA.replace("common/deep/", ""),
            "3:1: the import 'shared-types.proto' was not found; did you mean 'common/deep/shared-types.proto'?",
        ),
        (
            "common__base",
            'syntax = "proto3";\nimport "elsewhere.proto";\n',
            "common/base.proto:2:1: the import 'elsewhere.proto' was not found; imports are relative to ",
        ),
        ("common__base", 'syntax = "proto3";\nimport "data.proto";\n', "File recursively imports itself"),
        ("data", "\xff\x00\xfe", "data.proto:1:"),
        ("data", "", "there is no message 'acme.game.Observation'"),
    ],
)
def test_broken_proto(tmp_path: Path, name: str, text: str, expected: str) -> None:
    assert expected in refusal(project(tmp_path, **{name: text}))


def test_proto_that_is_nested_without_end(tmp_path: Path) -> None:
    text = "message A { " * 10_000 + "}" * 10_000
    assert "data.proto:" in refusal(project(tmp_path, data=f'syntax = "proto3"; {text}'))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import: {proto: data.proto}", "line 1: import.proto: expected a list, got 'data.proto'"),
        ("import: [a]", "line 1: import: expected a mapping, got a list"),
        (
            "\nimport: {proto: [other.proto]}",
            "line 2: import.proto[0]: there is no file 'other.proto'; paths are",
        ),
        ("import: {proto: [shared-types.proto]}", "did you mean 'common/deep/shared-types.proto'?"),
        ("import: {proto: [../data.proto]}", "expected a path below the folder of this file, got '../data.proto'"),
        ("import: {proto: [/data.proto]}", "expected a path below the folder of this file"),
        ("import: {proto: [common]}", "expected the path of a .proto file, got 'common'"),
        ("import: {proto: ['']}", "import.proto[0]: expected the path of a .proto file, got ''"),
        ("import: {python: [x]}", "line 1: import.python: is not supported since Cogment 2; remove it"),
        ("actor_class: []", "line 1: the file: unknown key 'actor_class'; did you mean 'actor_classes'?"),
        ("actor_classes: {}", "actor_classes: expected a list, got a mapping"),
        ("actor_classes:\n  - action: {space: A}", "line 2: actor_classes[0]: it has no name; add 'name: ...'"),
        (
            "actor_classes:\n  - id: a",
            "line 2: actor_classes[0]: it has no name; 'id' is its name in files of the legacy API",
        ),
        ("actor_classes: [{name: a}]", "actor_classes[0]: it has no observation type; add 'observation: {space: "),
        ("actor_classes: [{name: a, observation: {space: A}}]", "it has no action type; add 'action: {space: "),
        ("actor_classes: [{name: a, observation: A}]", "actor_classes[0].observation: expected a mapping, got 'A'"),
        ("actor_classes: [{name: a, observation: {spase: A}}]", "unknown key 'spase'; did you mean 'space'?"),
        ("actor_classes: [{name: a, observation: {space: [A]}}]", "observation.space: expected one value, got a list"),
        ("actor_classes: [{name: a, observation: {space: A, delta: B}}]", "observation.delta: is not supported"),
        (
            "actor_classes:\n- &a {name: a, observation: {space: A}, action: {space: A}}\n- *a",
            "line 2: actor_classes[1].name: there are two actor classes 'a'",
        ),
        ("environment: {config_type: {a: b}}", "environment.config_type: expected one value, got a mapping"),
        ("trial: {config_typ: a}", "line 1: trial: unknown key 'config_typ'; did you mean 'config_type'?"),
        ("a: b: c", "line 1: not YAML: "),
        ("- a", "line 1: the file: expected a mapping, got a list"),
        ("[" * 5000, "nested too deeply"),
        ("a: &a [*a, *a]\nimport: *a", "import: expected a mapping, got a list"),
        ("#" * (MAX_BYTES + 1), "larger than 4 MiB"),
    ],
)
def test_broken_file(folder: Path, text: str, expected: str, tmp_path: Path) -> None:
    project(tmp_path)
    assert expected in broken(tmp_path, text)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("import trial environment actor_classes commands components trial_params datalog dm_env_rpc legacy", "KEY: x"),
        ("proto python javascript", "import: {KEY: x}"),
        ("config_type pre_hooks", "trial: {KEY: x}"),
        ("config_type", "environment: {KEY: x}"),
        ("name action observation config_type", "actor_classes: [{KEY: x}]"),
        ("space", "actor_classes: [{name: a, observation: {space: A}, action: {KEY: x}}]"),
        ("space delta delta_apply_fn", "actor_classes: [{name: a, observation: {KEY: x}}]"),
    ],
)
def test_a_key_that_is_nearly_one_is_a_mistake(folder: Path, keys: str, text: str, tmp_path: Path) -> None:
    project(tmp_path)
    for key in keys.split():
        wrong = f"{key}z" if len(key) < 7 else key[:-1]
        assert f"unknown key {wrong!r}; did you mean {key!r}?" in broken(tmp_path, text.replace("KEY", wrong))


def test_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "cogment.yaml"
    path.write_bytes(b"import: \xff")
    with pytest.raises(InvalidArgumentError, match="not YAML"):
        load_spec(path)
    with pytest.raises(InvalidArgumentError, match="larger than 4 MiB"):
        load_spec("/dev/zero")
    with pytest.raises(InvalidArgumentError, match="No such file or directory"):
        load_spec(tmp_path / "elsewhere.yaml")
    path.unlink()
    with pytest.raises(InvalidArgumentError, match=r"there is no cogment.yaml or cogment.yml in this folder"):
        load_spec(tmp_path)


def test_what_other_tools_use_is_ignored(tmp_path: Path) -> None:
    text = SPEC.replace("- name: player", "- name: player\n    id: 3").replace("trial: {", "trial: {pre_hooks: [x], ")
    more = "commands: {a: b}\ncomponents: {python: {version: 1}}\ntrial_params: {nonsense: 1}\nmine: 1\n"
    path = project(tmp_path, text + more)
    path.write_text(path.read_text().replace("import:", "import:\n  python: []\n  javascript:"))
    declared = ProjectFile(path)
    assert [found.name for found in declared.actor_classes] == ["player", "smart-judge"]
    assert [proto.text for proto in declared.protos] == ["data.proto", "common/deep/shared-types.proto"]


def test_a_proto_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    path = project(tmp_path, SPEC.replace("[data.proto,", "[./data.proto, data.proto,"))
    assert len(ProjectFile(path).protos) == 2


def test_the_spelling_of_the_published_generator() -> None:
    names: dict[str, object] = dict.fromkeys(["a.b.Only", "a.b.Twice", "c.Twice", "Plain"])
    assert [resolve(names, name) for name in ("Only", "Twice", "Plain", "b.Only", "a.b.Twice")] == [
        *("a.b.Only", None, "Plain", None, "a.b.Twice")
    ]
    assert advice(names, "Twice") == "did you mean 'a.b.Twice' or 'c.Twice'?"
    assert advice(names, "quite.another") == "expected the full name of a message: a.b.Only, a.b.Twice, c.Twice, Plain"
    assert advice({}, "A") == "import.proto names no file with a message"


def test_commands(tmp_path: Path) -> None:
    path = project(tmp_path, "commands:\n  hello: echo hello\n  long: |\n    a\n    b\n  empty:\n")
    assert read_commands(path) == {"hello": "echo hello", "long": "a\nb\n", "empty": ""}
    assert read_commands(project(tmp_path, "")) == {}
    assert read_commands(project(tmp_path, "commands:")) == {}
    with pytest.raises(InvalidArgumentError, match=r"line 1: commands.a: expected one value, got a list"):
        read_commands(project(tmp_path, "commands: {a: [b]}"))


def test_what_the_compiler_says_in_other_ways() -> None:
    folder = Path(os.sep, "there")
    assert explained(folder, "") == "/there: protoc: it failed and did not say why"
    assert explained(folder, "a.proto: File not found.\n") == "/there: protoc: a.proto: File not found."


#: Whatever somebody writes into the file, it loads or is refused in one line.
VALUES = st.recursive(
    st.sampled_from(["data.proto", "acme.game.Move", "player", "", "null", "1e3", "*a", "&a x", "!!python/none"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(
            st.tuples(st.sampled_from(["name", "space", "proto", "action", "observation", "config_type", "<<"]), inner),
            max_size=4,
        ).map(lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items) + "}")
    ),
    max_leaves=8,
)


KEYS = st.sampled_from(["import", "actor_classes", "environment", "trial", "other", "<<"])


@given(st.lists(st.tuples(KEYS, VALUES), max_size=4))
@example([("import", "{proto: [data.proto]}"), ("trial", "{config_type: acme.game.Move}")])
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_loads_or_is_refused_in_one_line(tmp_path: Path, entries: list[tuple[str, str]]) -> None:
    path = tmp_path / "cogment.yaml"
    (tmp_path / "data.proto").write_text("")
    path.write_text("\n".join(f"{key}: {value}" for key, value in entries))
    said = f"{path}: it loads"
    try:
        ProjectFile(path)
    except CogmentError as error:
        said = str(error)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said


#: In a process of its own, since nothing leaves the default pool again.
DEFAULT_POOL = """\
from google.protobuf.descriptor_pool import Default
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from trio_cogment import load_spec
from trio_cogment.base.errors import InvalidArgumentError

{before}
spec = load_spec("cogment.yaml", pool=Default())
again = load_spec("cogment.yaml", pool=Default())
{after}
Observation = spec.message("acme.game.Observation")
seen = Observation(seen_at=Timestamp(seconds=3))
seen.seen_at.CopyFrom(Timestamp(seconds=4))
assert Observation is generated is again.message("acme.game.Observation")
assert spec.message("google.protobuf.Timestamp") is Timestamp
with open("data.proto", "a") as proto:
    proto.write("message Another {{}}")
assert load_spec(".").message("acme.game.Another")().ByteSize() == 0
try:
    load_spec(".", pool=Default())
except InvalidArgumentError as error:
    print(error)
"""


@pytest.mark.parametrize("generated_first", [False, True])
def test_the_default_pool_has_the_types_of_the_program(tmp_path: Path, generated_first: bool) -> None:
    path = project(tmp_path)
    write_files(tmp_path, python_modules(Project(path)))
    use = "from data_pb2 import Observation as generated"
    code = DEFAULT_POOL.format(before=use if generated_first else "", after="" if generated_first else use)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("data.proto: the descriptor pool has another file of this name, or other messages")


def test_a_pool_that_is_given(folder: Path) -> None:
    pool = DescriptorPool()
    spec = load_spec(folder, pool=pool)
    named = pool.FindMessageTypeByName("google.protobuf.Timestamp")
    assert spec.message("google.protobuf.Timestamp").DESCRIPTOR is named
    assert spec.message("acme.game.Observation")(seen_at=spec.message("google.protobuf.Timestamp")(seconds=3))


def test_a_compiler_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_cogment.sdk.spec._protoc.PATIENCE_SECONDS", 0.001)
    with pytest.raises(InvalidArgumentError, match=r"protoc took more than 0.001 s"):
        load_spec(project(tmp_path))


async def test_trial_with_types_in_memory(spec: Spec) -> None:
    """Payloads of the loaded types, and an Any field of one of them passed on as a message."""
    observation, action, move = (spec.message(f"acme.game.{name}") for name in ("Observation", "Action", "Move"))
    seen: list[object] = []

    async def environment(session: EnvironmentSession) -> None:
        first = observation(counts={"a": 1})
        first.anything.Pack(move(x=2))
        await session.start([("*", first)])
        async for event in session.all_events():
            if event.message is not None:
                found = move()
                assert event.message.payload.Unpack(found)
                seen.append(found.x)
            if event.actions is not None:
                seen.append(event.actions[0].payload == action(text="yes"))
                await session.end([("*", observation())])

    async def player(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None and event.type is EventType.ACTIVE:
                await session.send_message(event.observation.payload.anything, session.environment_name)
                await session.do_action(action(text="yes"))

    async with open_platform(spec) as platform:
        platform.participants.register_environment(environment)
        platform.participants.register_actor(player, "player", ["player"])
        trial = await platform.controller.start_trial(trial_params([actor_params("ann", "player")]))
        await platform.controller.wait_trial(trial)
    assert seen == [2.0, True]


def test_what_older_projects_say_of_deltas(tmp_path: Path) -> None:
    text = """\
actor_classes:
  - name: player
    action: {space: a.Action}
    observation:
      space: a.Seen
      delta: a.Change
      delta_apply_fn: {python: game.apply, javascript: x}
  - name: judge
    action: {space: a.Action}
    observation: {space: a.Seen, delta_apply_fn: {python: }}
"""
    (tmp_path / "cogment.yaml").write_text(text)
    player, judge = ProjectFile(tmp_path, legacy=True).actor_classes
    assert player.delta is not None
    assert player.delta.text == "a.Change"
    assert player.delta_function is not None
    assert player.delta_function.text == "game.apply"
    assert (judge.delta, judge.delta_function) == (None, None)
    with pytest.raises(InvalidArgumentError, match="is not supported since Cogment 2"):
        _ = ProjectFile(tmp_path).actor_classes
