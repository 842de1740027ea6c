"""The guide's code runs as it is printed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from tests.ports import free_port
from trio_cogment import rpc
from trio_cogment.sdk.spec.generation import grpc_modules

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "rpc.md"
PATIENCE_SECONDS = 60


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (proto,) = blocks("proto")
    (tmp_path / "greeter.proto").write_text(proto)
    assert protoc.main(["protoc", f"-I{tmp_path}", f"--python_out={tmp_path}", "greeter.proto"]) == 0
    descriptors = tmp_path / "descriptors"
    assert protoc.main(["protoc", f"-I{tmp_path}", f"--descriptor_set_out={descriptors}", "greeter.proto"]) == 0
    files = FileDescriptorSet.FromString(descriptors.read_bytes()).file
    for path, text in grpc_modules(files, ["greeter.proto"]).items():
        (tmp_path / path).write_text(text)
    return tmp_path


def test_server_and_client(folder: Path) -> None:
    port = str(free_port())
    for name, code in zip(("server.py", "client.py"), blocks("python"), strict=False):
        assert len([line for line in code.splitlines() if line]) <= 10
        assert code.count("50051") == 1  # all else is as printed
        (folder / name).write_text(code.replace("50051", port))
    with subprocess.Popen([sys.executable, "server.py"], cwd=folder) as server:
        try:
            client = [sys.executable, "client.py"]
            done = subprocess.run(
                client, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
            )
        finally:
            server.kill()
    assert (done.stdout, done.stderr) == ("Hello, world!\n", "")


def test_typed_stubs(folder: Path) -> None:
    (folder / "typed.py").write_text(blocks("python")[2])
    done = subprocess.run(
        [sys.executable, "typed.py"], cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert (done.stdout, done.stderr) == ("Hello, typed!\n", "")


async def test_every_other_block(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from google.protobuf.descriptor_pool import DescriptorPool

    out = folder / "descriptors"
    assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={out}", "greeter.proto"]) == 0
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    description = pool.FindFileByName("greeter.proto")
    greeter = description.services_by_name["Greeter"]

    names: dict[str, Any] = {
        "trio": trio,
        "rpc": rpc,
        "DESCRIPTOR": description,
        "Hello": GetMessageClass(description.message_types_by_name["Hello"]),
        "greeter": rpc.methods_of(greeter),
    }
    greeters, served, *others = blocks("python")[3:]
    for code in (greeters, served):
        await run(code, names)
    with trio.fail_after(PATIENCE_SECONDS):
        async with names["served"](names["FullGreeter"]()) as channel:
            for code in others:
                names["channel"] = channel  # blocks may give the name to another one
                await run(code, names)


async def run(code: str, names: dict[str, Any]) -> None:
    """Run a block that may `await` outside of functions."""
    compiled = compile(code, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = types.FunctionType(compiled, names)()
    if outcome is not None:
        await outcome


@pytest.mark.sources  # compiled classes have no docstrings
def test_every_public_name_is_documented() -> None:
    public = {name: getattr(rpc, name) for name in dir(rpc) if not name.startswith("_")}
    exported = {name: value for name, value in public.items() if not isinstance(value, types.ModuleType)}
    assert len(exported) > 25
    for name, value in exported.items():
        if name in ("Handler", "OnReply"):
            continue  # aliases, explained where they are made
        assert value.__doc__, name
        if isinstance(value, type):
            for member, function in vars(value).items():
                if not member.startswith("_") and callable(function):
                    described = any(getattr(base, member).__doc__ for base in value.__mro__ if hasattr(base, member))
                    assert described, f"{name}.{member}"
