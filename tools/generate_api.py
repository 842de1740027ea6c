"""Generate `src/trio_cogment/api` and `src/trio_cogment/rpc/_protos` from `protos/`.

Run by `nox -s protos`; `--check` writes nothing and fails if the checked-in files are stale.

protoc names the Python modules after the proto files (`cogment/api/...`), and those names must stay in the
descriptors: reflection shows them to foreign clients. Only the import statements are rewritten to our package, and for
the standard services, dm_env_rpc, the trainer and the legacy API the pool: see `trio_cogment.rpc._protos`. The messages
of this project alone (`trio_cogment/api/...`) are where protoc puts them, so that code that protoc generates from
protos that import them finds them there.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
SOURCE = ROOT / "src" / "trio_cogment"
API = "api"
STANDARD = "rpc/_protos"
DM_ENV_RPC = "api/dm_env_rpc"
TRAINER = "api/trainer"
LEGACY = "api/legacy"
#: Where in `protos/` the sources of `API` are.
FOLDERS = ("cogment/api", "trio_cogment/api")
#: The folders whose descriptors are in a pool of their own; of each the files, and what their modules are called.
POOLED = {
    STANDARD: {
        "grpc_health/v1/health.proto": "health",
        "grpc/reflection/v1/reflection.proto": "reflection_v1",
        "grpc_reflection/v1alpha/reflection.proto": "reflection_v1alpha",
        "google/rpc/status.proto": "status",
    },
    DM_ENV_RPC: {
        "google/rpc/status.proto": "status",
        "dm_env_rpc/v1/dm_env_rpc.proto": "dm_env_rpc",
        "dm_env_rpc/v1/extensions/properties.proto": "properties",
    },
    TRAINER: {"gymgui/trainer/trainer.proto": "trainer"},
    LEGACY: {
        f"cogment/api/{name}.proto": name
        for name in ("agent", "common", "data", "environment", "hooks", "orchestrator")
    },
}
#: Where the sources of a folder are, if not in `PROTOS`: files of the same name have to be compiled apart.
ELSEWHERE = {LEGACY: PROTOS / "cogment_legacy"}
_IMPORT = re.compile(r"^from cogment\.api import ", re.MULTILINE)
_MODULE = re.compile(r"(BuildTopDescriptorsAndMessages\(DESCRIPTOR, )'[^']*'")
_POOL_IMPORT = "from google.protobuf import descriptor_pool as _descriptor_pool\n"
_POOL = "_descriptor_pool.Default()"


def _well_known_protos() -> str:
    import importlib.resources

    return str(importlib.resources.files("grpc_tools") / "_proto")


def generate(out: Path) -> dict[str, str]:
    """Return path below the package -> content of every generated module and stub."""
    sources = sorted(str(path.relative_to(PROTOS)) for folder in FOLDERS for path in PROTOS.glob(f"{folder}/*.proto"))
    shared = {source for folder, files in POOLED.items() if folder not in ELSEWHERE for source in files}
    _compile([*sources, *sorted(shared)], PROTOS, out)
    made = sorted(path for folder in FOLDERS for path in (out / folder).glob("*_pb2.py*"))
    contents = {f"{API}/{path.name}": _IMPORT.sub("from trio_cogment.api import ", path.read_text()) for path in made}
    for folder, files in POOLED.items():
        package = f"trio_cogment.{folder.replace('/', '.')}"
        home = out
        if folder in ELSEWHERE:
            home = out / folder
            home.mkdir(parents=True)
            _compile(sorted(files), ELSEWHERE[folder], home)
        for source, name in files.items():
            module = home / source.replace(".proto", "_pb2")
            code = _in_own_pool(module.with_suffix(".py").read_text(), package, name)
            contents[f"{folder}/{name}_pb2.py"] = _import_siblings(code, package, files)
            stub = module.with_suffix(".pyi").read_text()
            contents[f"{folder}/{name}_pb2.pyi"] = _import_siblings(stub, package, files)
    return contents


def _compile(sources: Sequence[str], folder: Path, out: Path) -> None:
    from grpc_tools import protoc

    arguments = [f"-I{folder}", f"-I{_well_known_protos()}", f"--python_out={out}", f"--pyi_out={out}", *sources]
    code = protoc.main(["protoc", *arguments])
    if code:
        raise SystemExit(code)


def _in_own_pool(code: str, package: str, name: str) -> str:
    assert code.count(_POOL) == code.count(_POOL_IMPORT) == 1
    code = code.replace(_POOL_IMPORT, f"from {package} import POOL as _pool\n").replace(_POOL, "_pool")
    return _MODULE.sub(rf"\1'{package}.{name}_pb2'", code)


def _import_siblings(code: str, package: str, files: Mapping[str, str]) -> str:
    """Return code that imports the modules of the same folder from there, by the names that protoc gave them."""
    for source, name in files.items():
        parent, _, stem = source.removesuffix(".proto").rpartition("/")
        original = f"from {parent.replace('/', '.')} import {stem}_pb2"
        code = code.replace(original, f"from {package} import {name}_pb2")
    return code


def main() -> None:
    """Write the modules, or compare them with the checked-in ones."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail instead of writing when a file is stale")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        made = generate(Path(folder))
    present = {
        f"{folder}/{path.name}": path.read_text()
        for folder in (API, *POOLED)
        for path in (SOURCE / folder).glob("*_pb2.py*")
    }
    stale = sorted(name for name in made.keys() | present.keys() if made.get(name) != present.get(name))
    if check:
        if stale:
            sys.exit(f"stale generated files (run `nox -s protos`): {', '.join(stale)}")
        return
    for name in present.keys() - made.keys():
        (SOURCE / name).unlink()
    for name, content in made.items():
        (SOURCE / name).write_text(content)
    print(f"{len(stale)} of {len(made)} files changed")


if __name__ == "__main__":
    main()
