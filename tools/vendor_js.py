"""Fetches the JavaScript libraries that pages use, and writes them into `src/trio_cogment/web/assets/vendor`.

Each is a package of npm, whose archive must have the checksum that stands here. What is taken of it is changed in two
ways: browsers find other files by their paths only, and maps to sources that are not there are not named. Beside them,
`versions.json` says what each file is, with its licence and its checksum. With `--check` nothing is fetched or written,
and it fails if a file is not what `versions.json` says, or if that is not what this tool would write.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "src" / "trio_cogment" / "web" / "assets" / "vendor"
MANIFEST = "versions.json"


@dataclass(frozen=True)
class Package:
    """A package of npm.

    Attributes:
        name, version: of it.
        licence: by its SPDX name.
        archive: checksum (SHA-256) of what `npm pack` fetches.
        files: what is taken, by the name that it gets here.
    """

    name: str
    version: str
    licence: str
    archive: str
    files: dict[str, str]


PACKAGES = (
    Package(
        "preact",
        "11.2.0",
        "MIT",
        "3c4456766bd32b6b534d52bf4e9c2a29b33e7eedf6e96ed479300ba1a7888ebf",
        {
            "preact.js": "dist/preact.mjs",
            "preact-hooks.js": "hooks/dist/hooks.mjs",
            "preact-LICENSE.txt": "LICENSE",
        },
    ),
    Package(
        "htm",
        "3.1.1",
        "Apache-2.0",
        "2425b9bee11409177bcabc7f32e319926fc6690c1701c0b257c88bdff2d5ba90",
        {"htm.js": "dist/htm.mjs", "htm-LICENSE.txt": "LICENSE"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "MIT",
        "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d",
        {
            "uplot.js": "dist/uPlot.iife.min.js",
            "uplot.css": "dist/uPlot.min.css",
            "uplot-LICENSE.txt": "LICENSE",
        },
    ),
)
_MAP = re.compile(rb"\n?//# sourceMappingURL=\S+\s*\Z")


def changed(name: str, content: bytes) -> bytes:
    """Return a file as it is served."""
    if name.endswith(".js"):
        content = _MAP.sub(b"", content)
        content = content.replace(b'from"preact"', b'from"./preact.js"')
    if name == "uplot.js":  # the small form of it is not a module
        content += b"\nexport default uPlot;"
    return content.rstrip(b"\n") + b"\n"


def digest(content: bytes) -> str:
    """Return a checksum."""
    return hashlib.sha256(content).hexdigest()


def fetched(package: Package) -> dict[str, bytes]:
    """Return the files of a package as they are served.

    Raises:
        ValueError: what has come is something else.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, f"{package.name}@{package.version}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).iterdir()
        found = digest(archive.read_bytes())
        if found != package.archive:
            raise ValueError(f"{package.name} {package.version}: the archive has the checksum {found}")
        files = {}
        with tarfile.open(archive) as members:
            for name, path in package.files.items():
                member = members.extractfile(f"package/{path}")
                assert member is not None
                files[name] = changed(name, member.read())
        return files


def manifest(checksums: dict[str, str]) -> str:
    """Return the content of `versions.json`."""
    packages: list[dict[str, Any]] = [
        {
            "name": package.name,
            "version": package.version,
            "licence": package.licence,
            "archive": package.archive,
            "files": {name: checksums.get(name, "") for name in package.files},
        }
        for package in PACKAGES
    ]
    return json.dumps({"packages": packages}, indent=2) + "\n"


def complaints(folder: Path = FOLDER) -> Iterator[str]:
    """Yield what is not as it should be."""
    recorded: dict[str, str] = {}
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
        for package in json.loads(text)["packages"]:
            recorded |= package["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield f"{MANIFEST}: {error}"
        return
    if text != manifest(recorded):
        yield f"{MANIFEST}: it is of other versions"
    present = {path.name: path for path in folder.iterdir() if path.name != MANIFEST}
    for name in sorted(present.keys() ^ recorded.keys()):
        yield f"{name}: {'it is missing' if name in recorded else 'nobody knows where it is from'}"
    for name in sorted(present.keys() & recorded.keys()):
        if digest(present[name].read_bytes()) != recorded[name]:
            yield f"{name}: it has been changed"


def main() -> None:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file is not as it should be")
    if parser.parse_args().check:
        found = list(complaints())
        if found:
            sys.exit("\n".join(["run python tools/vendor_js.py", *found]))
        return
    files = {name: content for package in PACKAGES for name, content in fetched(package).items()}
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.iterdir():
        path.unlink()
    for name, content in files.items():
        (FOLDER / name).write_bytes(content)
    checksums = {name: digest(content) for name, content in files.items()}
    (FOLDER / MANIFEST).write_text(manifest(checksums), encoding="utf-8")


if __name__ == "__main__":
    main()
