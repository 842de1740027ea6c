"""Generated modules: what they hold, that they load, and that type checkers find mistakes with them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tests.sdk.spec.projects import SPEC, project
from tests.type_checker import type_checked
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.sdk.spec.generation import javascript_modules, python_modules, write_files
from trio_cogment.sdk.spec.generation._names import Names, identifier, is_plain, pascal_case
from trio_cogment.sdk.spec.generation._protobufjs import description, field_name
from trio_cogment.sdk.spec.project import Project

PROGRAM = """\
from trio_cogment import Participants
from common.base_pb2 import Plain
from data_pb2 import Action, Observation, TrialConfig
from trio_cog_settings import SPEC, EnvironmentSession, PlayerSession, SmartJudgeSession


async def environment(session: EnvironmentSession) -> None:
    plain: Plain | None = session.config
    print(session.required_config.name)
    await session.start([("*", Observation(counts={"a": 1}))])
    async for event in session.all_events():
        for action in event.actions or []:
            if isinstance(action.payload, Action):
                print(action.payload.kind, action.payload.raw_data, plain)
        await session.end([(0, Observation())])


async def player(session: PlayerSession) -> None:
    if session.config is not None:
        print(session.config.x + 1)
    async for event in session.all_events():
        if event.observation is not None:
            print(event.observation.payload.inner.x)
            await session.do_action(Action(text="yes"))


async def judge(session: SmartJudgeSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            print(event.observation.payload.how_far)


print(TrialConfig(rounds=1, **{"class": True}))
participants = Participants(SPEC)
participants.register_environment(environment)
participants.register_actor(player, "player", ["player"])
participants.register_actor(judge, "judge", ["smart-judge"])
"""
#: What is planted, and the error that it has to make.
MISTAKES = [
    ('do_action(Action(text="yes"))', "do_action(Observation())", "[arg-type]"),
    ("payload.inner.x", "payload.inner.y", "[attr-defined]"),
    ("required_config.name", "required_config.nam", "[attr-defined]"),
    ("Plain | None = session.config", "Plain = session.config", "[assignment]"),
    ("session.end([(0, Observation())])", "session.end([(0, Action())])", "[list-item]"),
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(project(tmp_path_factory.mktemp("project")))


@pytest.fixture(scope="module")
def modules(loaded: Project) -> Mapping[str, str]:
    return python_modules(loaded)


@pytest.fixture(scope="module")
def written(modules: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    write_files(folder, modules)
    return folder


def run(folder: Path, code: str) -> str:
    """Run a program among the modules, where every warning is an error."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_modules_load_and_a_message_goes_there_and_back(written: Path) -> None:
    output = run(
        written,
        "from trio_cog_settings import SPEC, EnvironmentSession, PlayerConfig, PlayerSession, SmartJudgeAction\n"
        "from common.deep.shared_types_pb2 import Outer, Plain\n"
        "from data_pb2 import Action, Observation\n"
        "from google.protobuf.timestamp_pb2 import Timestamp\n"
        "seen = Observation(inner=Outer.Inner(x=3), seen_at=Timestamp(seconds=4), counts={'a': 1})\n"
        "assert Observation.FromString(seen.SerializeToString()) == seen\n"
        "assert SPEC.environment_config is Plain and PlayerConfig is Outer.Inner and SmartJudgeAction is Outer\n"
        "assert Action.Kind.Name(1) == 'None'\n"
        "print([actor_class.name for actor_class in SPEC.actor_classes], seen.inner.x)",
    )
    assert output == "['player', 'smart-judge'] 3\n"


def test_protos_that_come_with_protobuf_have_no_module_of_their_own(tmp_path: Path) -> None:
    text = SPEC.replace("proto: [", "proto: [google/protobuf/struct.proto, ")
    found = Project(project(tmp_path, text.replace("config_type: Plain", "config_type: google.protobuf.Struct")))
    made = python_modules(found)
    assert not [path for path in made if path.startswith("google")]
    write_files(tmp_path / "made", made)
    check = "from google.protobuf.struct_pb2 import Struct; from trio_cog_settings import SPEC"
    run(tmp_path / "made", f"{check}; assert SPEC.environment_config is Struct")
    assert "import google.protobuf.struct_pb2 as google_protobuf_struct_pb\n" in made["cog_settings.py"]
    assert "google.protobuf.Struct" in javascript_modules(found)["CogSettings.js"]


def test_the_modules_hold_what_those_of_protoc_hold(
    loaded: Project, modules: Mapping[str, str], tmp_path: Path
) -> None:
    """Then protobuf accepts both in one process."""
    protos = ["data.proto", "common/base.proto", "common/deep/shared-types.proto"]
    command = [sys.executable, "-P", "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", *protos]
    subprocess.run(command, cwd=loaded.declared.folder, timeout=60, check=True)
    for path in ("data_pb2.py", "common/base_pb2.py", "common/deep/shared_types_pb2.py"):
        assert embedded(modules[path]) == embedded((tmp_path / path).read_text())


def embedded(module: str) -> FileDescriptorProto:
    calls = [node for node in ast.walk(ast.parse(module)) if isinstance(node, ast.Call)]
    (found,) = [call.args[0] for call in calls if ast.unparse(call.func).endswith("AddSerializedFile")]
    return FileDescriptorProto.FromString(ast.literal_eval(found))


def test_type_checkers_find_mistakes(written: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    for number, (right, wrong, _) in enumerate(MISTAKES):
        assert PROGRAM.count(right) == 1
        (tmp_path / f"mistake_{number}.py").write_text(PROGRAM.replace(right, wrong))
    said = type_checked(tmp_path, MYPYPATH=str(written))
    found = sorted(line for line in said.splitlines() if ": error: " in line)
    assert len(found) == len(MISTAKES), said
    for number, (line, (_, _, kind)) in enumerate(zip(found, MISTAKES, strict=True)):
        assert line.startswith(f"mistake_{number}.py:")
        assert line.endswith(kind)


def test_type_checkers_accept_extensions(tmp_path: Path) -> None:
    text = """\
syntax = "proto3";
import "google/protobuf/descriptor.proto";
extend google.protobuf.FieldOptions { string unit = 50001; }
message M { int32 length = 1 [(unit) = "m"]; }
"""
    made = python_modules(Project(project(tmp_path, "import: {proto: [m.proto]}", m=text)))
    assert "\nUNIT_FIELD_NUMBER: int\n" in made["m_pb2.pyi"]
    assert "\n    LENGTH_FIELD_NUMBER: _ClassVar[int]\n" in made["m_pb2.pyi"]
    write_files(tmp_path, made)
    code = "from m_pb2 import M, unit; print(M.DESCRIPTOR.fields[0].GetOptions().Extensions[unit])"
    assert run(tmp_path, code) == "m\n"


def test_the_same_project_gives_the_same_bytes(modules: Mapping[str, str], tmp_path: Path) -> None:
    other = Project(project(tmp_path / "somewhere" / "else"))
    assert python_modules(other) == modules
    assert javascript_modules(other) == javascript_modules(other)
    for text in {**modules, **javascript_modules(other)}.values():
        assert str(tmp_path) not in text


def test_what_has_not_changed_is_not_touched(modules: Mapping[str, str], tmp_path: Path) -> None:
    assert write_files(tmp_path, modules) == sorted(modules)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "data_pb2.py").write_text("old")
    assert write_files(tmp_path, modules) == ["data_pb2.py"]
    assert {path for path, time in before.items() if path.stat().st_mtime_ns != time} == {tmp_path / "data_pb2.py"}
    assert not list(tmp_path.rglob(".*"))


def test_names_that_are_no_identifiers(tmp_path: Path) -> None:
    text = 'syntax = "proto3"; package {0}; message None {{ message class {{ int32 None = 1; }} }}'
    spec = """\
import: {proto: [1/class/my-data.v2.proto, b.proto]}
actor_classes:
  - {name: "a b", observation: {space: x.None.class}, action: {space: x.None}}
  - {name: "a_b", observation: {space: y.None}, action: {space: y.None}}
  - {name: "environment", observation: {space: y.None}, action: {space: y.None}}
"""
    path = project(tmp_path, spec, b=text.format("y"))
    (tmp_path / "1" / "class").mkdir(parents=True)
    (tmp_path / "1" / "class" / "my-data.v2.proto").write_text(text.format("x"))
    write_files(tmp_path / "made", python_modules(Project(path)))
    output = run(
        tmp_path / "made",
        "import trio_cog_settings as made\n"
        "print([c.observation.DESCRIPTOR.full_name for c in made.SPEC.actor_classes])\n"
        "print(made.ABSession is not made.AB2Session, made.Environment2Session)",
    )
    assert output.splitlines()[0] == "['x.None.class', 'y.None', 'y.None']"


def test_two_protos_with_one_module(tmp_path: Path) -> None:
    empty = 'syntax = "proto3";'
    path = project(tmp_path, "import: {proto: [a-b.proto, a_b.proto]}", **{"a-b": empty, "a_b": empty})
    with pytest.raises(InvalidArgumentError, match=r"a_b.proto: another proto makes a_b_pb2.py, too; rename one"):
        python_modules(Project(path))


def test_a_project_without_actor_classes(tmp_path: Path) -> None:
    path = project(tmp_path, "")
    made = python_modules(Project(path))
    write_files(tmp_path, made)
    assert run(tmp_path, "from trio_cog_settings import SPEC; print(SPEC.actor_classes)") == "()\n"
    assert "ActorClassList()" in made["cog_settings.py"]


def test_names() -> None:
    names = Names(["A"])
    assert [names.take("A"), names.take("A"), names.take("B", "x", "y"), names.take("Bx"), names.take("B", "x")] == [
        *("A2", "A3", "B", "Bx2", "B2")
    ]
    assert [identifier(text) for text in ("a-b", "1", "", "class")] == ["a_b", "_1", "_", "_class"]
    assert [pascal_case(text) for text in ("smart_player", "myHTTP", "none", "2 d", "...")] == [
        *("SmartPlayer", "MyHTTP", "_None", "_2D", "_")
    ]
    assert is_plain("a.b_pb2")
    assert not is_plain("a.1")
    assert not is_plain("class.a")


# --- JavaScript ---


def test_settings_in_javascript(loaded: Project) -> None:
    made = javascript_modules(loaded)
    assert set(made) == {
        *("CogMessages.js", "CogMessages.d.ts", "CogTypes.d.ts", "CogSettings.js", "CogSettings.d.ts"),
        *("data_pb.js", "data_pb.d.ts", "shared-types_pb.js", "shared-types_pb.d.ts"),
    }
    settings = made["CogSettings.js"]
    assert (
        'export class SmartJudgeActorClass {\n  name = "smart-judge";\n  actionSpace = messages.acme.shared.Outer;'
        in settings
    )
    assert '"type.googleapis.com/acme.shared.Outer.Inner": messages.acme.shared.Outer.Inner,' in settings
    typed = javascript_modules(loaded, typescript=True)
    assert set(made) - set(typed) == {"CogSettings.js", "CogSettings.d.ts"}
    assert "export class PlayerActorClass implements ActorClass {" in typed["CogSettings.ts"]


def test_messages_in_javascript(loaded: Project) -> None:
    text = javascript_modules(loaded)["CogMessages.js"]
    found = json.loads(text[text.index("{") : text.index(";\n\nconst root")])
    assert found == description(loaded.files)
    assert "const $Plain = messages.Plain;\nexport { $Plain as Plain };\n" in text
    game = found["nested"]["acme"]["nested"]["game"]["nested"]
    assert game["Observation"]["fields"] == {
        "inner": {"type": ".acme.shared.Outer.Inner", "id": 1},
        "seenAt": {"type": ".google.protobuf.Timestamp", "id": 2},
        "anything": {"type": ".google.protobuf.Any", "id": 3},
        "counts": {"keyType": "string", "type": "int32", "id": 4},
        "moves": {"rule": "repeated", "type": ".acme.game.Move", "id": 5},
    }
    assert game["Action"]["oneofs"] == {"more": {"oneof": ["text", "rawData"]}}
    assert game["Action"]["nested"] == {"Kind": {"values": {"WAIT": 0, "None": 1}}}
    assert found["nested"]["Plain"] == {"fields": {"name": {"type": "string", "id": 1}}}
    assert set(found["nested"]["google"]["nested"]["protobuf"]["nested"]["Any"]["fields"]) == {"type_url", "value"}


def test_older_protos_in_javascript(tmp_path: Path) -> None:
    text = """\
syntax = "proto2";
message M {
  required int32 a = 1;
  optional double b = 2 [default = 1.5];
  optional bool c = 3 [default = true];
  optional int64 d = 4 [default = -7];
  optional E e = 5 [default = TWO];
  optional string f = 6 [default = "x"];
  repeated int32 g = 7;
  repeated int32 h = 8 [packed = true];
}
enum E { option allow_alias = true; ONE = 1; TWO = 2; ZWEI = 2; }
"""
    newer = 'syntax = "proto3"; message N { optional int32 a = 1; }'
    path = project(tmp_path, "import: {proto: [m.proto, n.proto]}", m=text, n=newer)
    loaded = Project(path)
    nested: dict[str, Any] = description(loaded.files)["nested"]
    assert nested["M"]["fields"] == {
        "a": {"rule": "required", "type": "int32", "id": 1},
        "b": {"type": "double", "id": 2, "options": {"default": 1.5}},
        "c": {"type": "bool", "id": 3, "options": {"default": True}},
        "d": {"type": "int64", "id": 4, "options": {"default": -7}},
        "e": {"type": ".E", "id": 5, "options": {"default": "TWO"}},
        "f": {"type": "string", "id": 6, "options": {"default": "x"}},
        "g": {"rule": "repeated", "type": "int32", "id": 7, "options": {"packed": False}},
        "h": {"rule": "repeated", "type": "int32", "id": 8},
    }
    assert nested["N"] == {"fields": {"a": {"type": "int32", "id": 1, "options": {"proto3_optional": True}}}}
    assert nested["E"] == {"options": {"allow_alias": True}, "values": {"ONE": 1, "TWO": 2, "ZWEI": 2}}
    assert "export declare enum E { ONE = 1, TWO = 2, ZWEI = 2 }" in javascript_modules(loaded)["CogMessages.d.ts"]


def test_groups_are_refused_in_javascript(tmp_path: Path) -> None:
    text = 'syntax = "proto2"; message M { optional group G = 1 { optional int32 a = 1; } }'
    loaded = Project(project(tmp_path, "import: {proto: [m.proto]}", m=text))
    with pytest.raises(InvalidArgumentError, match=r"m.proto: M.g is a group, which JavaScript does not support"):
        javascript_modules(loaded)


def test_names_of_fields_in_javascript() -> None:
    file = FileDescriptorProto(name="a.proto")
    names = ["how_far", "a1_b2", "_x_y", "UPPER_CASE", "a__b", "a_"]
    # As protobufjs 6, 7 and 8 convert them.
    assert [field_name(file, name) for name in names] == ["howFar", "a1B2", "_xY", "UPPER_CASE", "a_B", "a_"]
    assert description(FileDescriptorSet()) == {}
