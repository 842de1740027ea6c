"""Generate `src/trio_cogment/api` from `protos/`.

Run by `nox -s protos`; `--check` writes nothing and fails if the checked-in files are stale.

protoc names the Python modules after the proto files (`cogment/api/...`), and those names must stay in the
descriptors: reflection shows them to foreign clients. Only the import statements are rewritten to our package.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = ROOT / "src" / "trio_cogment" / "api"
_IMPORT = re.compile(r"^from cogment\.api import ", re.MULTILINE)


def _well_known_protos() -> str:
    import importlib.resources

    return str(importlib.resources.files("grpc_tools") / "_proto")


def generate(out: Path) -> dict[str, str]:
    """Return file name -> content of every generated module and stub."""
    from grpc_tools import protoc

    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("cogment/api/*.proto"))
    code = protoc.main(
        ["protoc", f"-I{PROTOS}", f"-I{_well_known_protos()}", f"--python_out={out}", f"--pyi_out={out}", *sources]
    )
    if code:
        raise SystemExit(code)
    made = sorted((out / "cogment" / "api").glob("*_pb2.py*"))
    return {path.name: _IMPORT.sub("from trio_cogment.api import ", path.read_text()) for path in made}


def main() -> None:
    """Write the modules, or compare them with the checked-in ones."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail instead of writing when a file is stale")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        made = generate(Path(folder))
    present = {path.name: path.read_text() for path in TARGET.glob("*_pb2.py*")}
    stale = sorted(name for name in made.keys() | present.keys() if made.get(name) != present.get(name))
    if check:
        if stale:
            sys.exit(f"stale generated files (run `nox -s protos`): {', '.join(stale)}")
        return
    for name in present.keys() - made.keys():
        (TARGET / name).unlink()
    for name, content in made.items():
        (TARGET / name).write_text(content)
    print(f"{len(stale)} of {len(made)} files changed")


if __name__ == "__main__":
    main()
