"""Protos compiled to descriptors, without a file in the project's folder, by the protoc in `grpcio-tools`.

It runs as a process of its own: it writes its errors to its standard error, and may be stopped if it takes too long.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError
from trio_cogment.sdk.spec._project_file import similar_protos

#: How long the compiler may take.
PATIENCE_SECONDS = 60.0

_PLACED = re.compile(r"(?P<file>[^:\n]+\.proto):(?P<line>\d+):(?P<column>\d+): (?P<text>.*)")
_NOT_FOUND = re.compile(r'Import "(?P<file>[^"]+)" was not found or had errors\.')
_UNUSED = re.compile(r"warning: ")


def compile_protos(folder: Path, protos: Sequence[str], *, comments: bool = False) -> FileDescriptorSet:
    """Return the descriptors of protos and of all they import, each after those that it imports.

    Args:
        folder: what the paths, and those of imports, are relative to.
        protos: the paths.
        comments: whether the descriptors have the protos' comments.

    Raises:
        FailedPreconditionError: there is no compiler.
        InvalidArgumentError: a proto is invalid; the text names the file, the line and the column.
    """
    with tempfile.TemporaryDirectory(prefix="trio-cogment-") as made:
        output = Path(made, "descriptors")
        wanted = ["--include_imports", *(["--include_source_info"] if comments else [])]
        _run(folder, ["-I.", *wanted, f"--descriptor_set_out={output}", *_files(folder, protos)])
        return FileDescriptorSet.FromString(output.read_bytes())


def _files(folder: Path, protos: Sequence[str]) -> list[str]:
    """Return the arguments for protos: those of the folder, and those that come with the compiler."""
    return [f"./{path}" if Path(folder, path).is_file() else path for path in protos]


def type_stubs(files: FileDescriptorSet, protos: Sequence[str]) -> Mapping[str, str]:
    """Return the stubs for type checkers of these protos' Python modules, by path.

    Raises:
        FailedPreconditionError: there is no compiler.
    """
    with tempfile.TemporaryDirectory(prefix="trio-cogment-") as made:
        folder = Path(made)
        (folder / "descriptors").write_bytes(files.SerializeToString(deterministic=True))
        (folder / "stubs").mkdir()
        _run(folder, ["--descriptor_set_in=descriptors", "--pyi_out=stubs", *protos])
        return {
            path.relative_to(folder / "stubs").as_posix(): path.read_text(encoding="utf-8")
            for path in sorted((folder / "stubs").rglob("*.pyi"))
        }


def _run(folder: Path, arguments: list[str]) -> None:
    if importlib.util.find_spec("grpc_tools") is None:
        raise MissingExtraError.of("grpcio-tools", "generate", needed_for="compiling protos")
    # -P: a folder `google` or `grpc_tools` of the project is not a Python package.
    command = [sys.executable, "-P", "-m", "grpc_tools.protoc", *arguments]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidArgumentError(f"{folder}: protoc took more than {PATIENCE_SECONDS:g} s") from None
    if done.returncode:
        raise InvalidArgumentError(explained(folder, done.stderr.decode("utf-8", "replace")))


def explained(folder: Path, output: str) -> str:
    """Return what the compiler found first, with its place and what to do about it."""
    lines = [line for line in output.splitlines() if line.strip() and not _UNUSED.search(line)]
    placed = [found for found in map(_PLACED.fullmatch, lines) if found]
    # An import that has errors of its own is named after these; one that is missing is the error itself.
    first = next((found for found in placed if not _had_errors(folder, found)), placed[0] if placed else None)
    if first is None:
        return f"{folder}: protoc: {' '.join(lines) or 'it failed and did not say why'}"
    text = first["text"]
    if missing := _NOT_FOUND.fullmatch(text):
        text = f"the import {missing['file']!r} was not found{_remedy(folder, missing['file'])}"
    return f"{folder / first['file']}:{first['line']}:{first['column']}: {text}"


def _had_errors(folder: Path, found: re.Match[str]) -> bool:
    imported = _NOT_FOUND.fullmatch(found["text"])
    return imported is not None and (folder / imported["file"]).is_file()


def _remedy(folder: Path, name: str) -> str:
    similar = similar_protos(folder, name.rpartition("/")[2])
    if similar:
        return f"; did you mean {similar[0]!r}?"
    return f"; imports are relative to {folder}, the folder of the project file"
