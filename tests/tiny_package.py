"""A small distribution, installed as an installer does it: modules and a `dist-info` folder on the path."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(folder: Path, name: str, modules: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]]) -> Path:
    """Install it; return the folder that has to be on `sys.path`."""
    site = folder / f"site-{name}"
    info = site / f"{name.replace('-', '_')}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "INSTALLER").write_text("tests\n")
    groups = (
        f"[{group}]\n" + "".join(f"{entry} = {value}\n" for entry, value in entries.items())
        for group, entries in entry_points.items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups))
    for module, text in modules.items():
        (site / f"{module}.py").write_text(textwrap.dedent(text))
    record = [f"{path.relative_to(site)},," for path in sorted(site.rglob("*")) if path.is_file()]
    (info / "RECORD").write_text("\n".join([*record, f"{info.name}/RECORD,,", ""]))
    return site


def make_importable(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put it on the path for the time of a test."""
    monkeypatch.syspath_prepend(str(site))
    for path in site.glob("*.py"):
        monkeypatch.setitem(sys.modules, path.stem, None)  # restored, that is removed, after the test
        del sys.modules[path.stem]
