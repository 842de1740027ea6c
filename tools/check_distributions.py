"""Checks what is in a wheel and in a source distribution: `python tools/check_distributions.py dist`.

The wheel has every file of the package and what is put into it from elsewhere, and nothing else; the source
distribution has what the checks of the project need, too. Neither has what a run has left behind.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
SDIST = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]
#: All that pages load, as it is compressed in the wheel.
MAX_PAGE_BYTES = 200_000
#: What runs leave behind, and what is not a file of the project.
LEFT_BEHIND = {"__pycache__", "_build", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"}
#: The pages that `nox -s docs` writes.
WRITTEN = ROOT / "docs" / "api"
#: What the backend writes into a source distribution by itself.
MADE = {"PKG-INFO", "pyproject.toml", ".gitignore"}


def version() -> str:
    """Return the version that the package says it has."""
    tree = ast.parse((ROOT / "src" / "trio_cogment" / "_version.py").read_text(encoding="utf-8"))
    (value,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
    return str(ast.literal_eval(value))


def files(folder: Path) -> set[str]:
    """Return the files below a folder, or the file itself, by their paths in the project."""
    if folder.is_file():
        return {folder.relative_to(ROOT).as_posix()}
    return {
        path.relative_to(ROOT).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
        and not LEFT_BEHIND & set(path.parts)
        and path.suffix != ".pyc"
        and WRITTEN not in path.parents
    }


def difference(what: str, found: Iterable[str], expected: Iterable[str]) -> Iterator[str]:
    """Yield what is missing, and what should not be there."""
    found, expected = set(found), set(expected)
    yield from (f"{what}: {name} is missing" for name in sorted(expected - found))
    yield from (f"{what}: {name} should not be there" for name in sorted(found - expected))


def check_wheel(path: Path) -> Iterator[str]:
    """Yield what is wrong with a wheel."""
    with zipfile.ZipFile(path) as opened:
        names = [name for name in opened.namelist() if not name.endswith("/")]
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        said = opened.read(metadata).decode()
        of_pages = sum(one.compress_size for one in opened.infolist() if "/assets/" in one.filename)
    info = metadata.rpartition("/")[0]
    expected = {name.removeprefix("src/") for name in files(ROOT / "src" / "trio_cogment")}
    expected |= set(WHEEL["force-include"].values())
    expected |= {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")}
    expected |= {f"{info}/licenses/{name}" for name in PROJECT["project"]["license-files"]}
    yield from difference(path.name, names, expected)
    if not 0 < of_pages <= MAX_PAGE_BYTES:
        yield f"{path.name}: what pages load has {of_pages} bytes; expected {MAX_PAGE_BYTES} at most"
    if f"\nVersion: {version()}\n" not in said:
        yield f"{path.name}: the metadata says another version than the package, {version()}"


def check_sdist(path: Path) -> Iterator[str]:
    """Yield what is wrong with a source distribution."""
    with tarfile.open(path) as opened:
        names = {one.name.partition("/")[2] for one in opened.getmembers() if one.isfile()}
    expected = set[str]().union(*(files(ROOT / name) for name in SDIST["include"]))
    yield from difference(path.name, names - MADE, expected - MADE)


def main() -> None:
    """Check the distributions in a folder; exit with an error if one is missing or wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    wheels, sdists = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    if (len(wheels), len(sdists)) != (1, 1):
        sys.exit(f"{folder}: expected a wheel and a source distribution, found {[*wheels, *sdists]}")
    wrong = [*check_wheel(wheels[0]), *check_sdist(sdists[0])]
    if PROJECT["project"]["version"] != version():
        wrong.append(f"pyproject.toml has version {PROJECT['project']['version']}, and the package {version()}")
    for text in wrong:
        print(text)
    if wrong:
        sys.exit(1)
    print(f"{wheels[0].name} and {sdists[0].name} have what they should, and nothing else")


if __name__ == "__main__":
    main()
