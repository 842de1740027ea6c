"""Typed gRPC: what protoc writes with the plugin runs, has the types that it says, and refuses mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.process import run_main
from tests.type_checker import type_checked

PROTO = """\
syntax = "proto3";
package demo.v1;
import "google/protobuf/empty.proto";
import "parts/text-part.proto";

// Greets "people" with a \\.
service Greeter {
  // Says hello.
  //
  // \"\"\"Twice\"\"\", if asked to.
  rpc Greet(parts.Text) returns (parts.Text);
  rpc Count(parts.Text) returns (stream parts.Text.Number);
  rpc Join(stream parts.Text) returns (parts.Text);
  rpc Chat(stream parts.Text) returns (stream google.protobuf.Empty);
}

service Nothing {}
"""
PART = """\
syntax = "proto3";
package parts;
message Text { string text = 1; message Number { int32 number = 1; } }
"""
PROGRAM = """\
from collections.abc import AsyncIterator

import trio
from google.protobuf.empty_pb2 import Empty
from world.greeter_grpc import GreeterDescriptor, GreeterServicer, GreeterStub
from parts.text_part_pb2 import Text

from trio_cogment import rpc


class Greeter(GreeterServicer):
    async def Greet(self, request: Text, call: rpc.ServerCall[Text, Text]) -> Text:
        return Text(text=f"Hello, {request.text}!")

    async def Join(self, call: rpc.ServerCall[Text, Text]) -> Text:
        return Text(text=" ".join([request.text async for request in call]))

    async def Chat(self, call: rpc.ServerCall[Empty, Text]) -> None:
        async for request in call:
            print("chat", request.text)
            await call.send(Empty())


async def words() -> AsyncIterator[Text]:
    yield Text(text="three")
    yield Text(text="four")


async def main() -> None:
    async with rpc.InProcessChannel([rpc.bind(GreeterDescriptor, Greeter())]) as channel:
        stub = GreeterStub(channel)
        reply = await stub.Greet(Text(text="you"), timeout=30)
        print(reply.text)
        print((await stub.Join([Text(text="one"), Text(text="two")])).text, (await stub.Join(words())).text)
        async with stub.Chat.open(metadata={"name": "value"}) as chat:
            await chat.send(Text(text="so"))
            await chat.done_sending()
            print(len([empty async for empty in chat]))
        try:
            async with stub.Count(Text(text="me")) as counted:
                async for number in counted:
                    print(number.number)
        except rpc.RpcError as error:
            print(error.code.name)


trio.run(main)
"""
PRINTED = """\
Hello, you!
one two three four
chat so
1
UNIMPLEMENTED
"""
#: What is written in place of what, and the kind of error that strict mypy reports.
MISTAKES = [
    ("print(reply.text)", "print(reply.txt)", "[attr-defined]"),
    ('stub.Greet(Text(text="you"), timeout=30)', 'stub.Greet("you", timeout=30)', "[arg-type]"),
    ("await stub.Greet", "await stub.greet", "[attr-defined]"),
    ('chat.send(Text(text="so"))', "chat.send(Empty())", "[arg-type]"),
    ("print(number.number)", "print(number.text)", "[attr-defined]"),
    ("call.send(Empty())", "call.send(request)", "[arg-type]"),
    ("GreeterStub(channel)", "GreeterStub(3)", "[arg-type]"),
    ("def Join(self, call:", "def Join(self, request: Text, call:", "[override]"),
]


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """A folder with protos, and what protoc makes of them."""
    for path, text in (("world/greeter.proto", PROTO), ("parts/text-part.proto", PART)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    done = protoc(tmp_path, "world/greeter.proto", "parts/text-part.proto")
    assert (done.stderr, done.stdout, done.returncode) == ("", "", 0)
    return tmp_path


def protoc(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    outputs = ["--python_out=.", "--pyi_out=.", "--trio_grpc_out=."]
    return subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_plugin_writes_what_runs(folder: Path) -> None:
    (folder / "program.py").write_text(PROGRAM)
    assert not (folder / "parts" / "text_part_grpc.py").exists(), "it has no services"
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.stderr) == (PRINTED, "")


def test_comments_become_docstrings(folder: Path) -> None:
    code = "from world.greeter_grpc import GreeterServicer as S; print(S.__doc__, S.Greet.__doc__, S.Join.__doc__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert 'Greets "people" with a \\.' in done.stdout
    assert 'Says hello.\n\n        """Twice""", if asked to.' in done.stdout
    assert done.stdout.rstrip().endswith("None")


def test_strict_type_checkers_find_mistakes_and_no_others(folder: Path) -> None:
    (folder / "program.py").write_text(PROGRAM)
    for number, (right, wrong, _) in enumerate(MISTAKES):
        assert PROGRAM.count(right) == 1, right
        (folder / f"mistake_{number}.py").write_text(PROGRAM.replace(right, wrong))
    said = type_checked(folder)
    found = sorted(line for line in said.splitlines() if ": error: " in line)
    assert len(found) == len(MISTAKES), said
    for number, (line, (_, _, kind)) in enumerate(zip(found, MISTAKES, strict=True)):
        assert line.startswith(f"mistake_{number}.py:")
        assert line.endswith(kind)


def test_generate_writes_the_same_for_the_protos_of_a_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    Path("cogment.yaml").write_text(
        "import:\n  proto: [world/greeter.proto]\n"
        "actor_classes:\n- name: player\n  action: {space: parts.Text}\n  observation: {space: parts.Text}\n"
    )
    output = run_main("generate", "--python_dir=made", "--grpc")
    assert (output.code, output.err) == (0, "")
    written = Path("made/world/greeter_grpc.py").read_text()
    assert written == Path("world/greeter_grpc.py").read_text()
    assert not Path("made/parts/text_part_grpc.py").exists()
    run_main("generate", "--python_dir=without")
    assert not list(Path("without").rglob("*_grpc.py"))


def test_grpc_is_of_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    output = run_main("generate", "--js_dir=made", "--grpc")
    assert output.code == 1
    assert "--grpc writes Python modules; it needs --python_dir or --output beside --js_dir" in output.err
