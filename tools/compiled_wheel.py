"""The build hook of compiled wheels: mypyc compiles some modules, from the same sources.

It does nothing unless `HATCH_BUILD_HOOK_ENABLE_CUSTOM` is set: a wheel is pure by default, and so is what `pip
install .` makes. A compiled wheel has the sources, too. `pyproject.toml` says which modules are compiled; nothing is
written into the source tree, so an editable installation always runs the sources.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The functions of all modules are in one extension module, so that calls between modules cost what calls in C do.
GROUP = "trio_cogment"
SOURCES = "src"


class CompiledWheel(BuildHookInterface[Any]):
    """Adds to a wheel the extension modules of what `modules` names: module paths below `src`, without a suffix."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the installation is to be editable."""
        if version == "editable":
            return
        self._folder = TemporaryDirectory()
        library = compile_modules(Path(self.root), self.config["modules"], Path(self._folder.name))
        for file in sorted(library.rglob("*")):
            if file.is_file():
                build_data["force_include"][str(file)] = str(file.relative_to(library))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what has been packed."""
        if version != "editable":
            self._folder.cleanup()


def compile_modules(root: Path, modules: list[str], folder: Path) -> Path:
    """Compile modules, and return the folder with the extension modules, each where it is imported from."""
    # What a pure wheel is built without.
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    before = Path.cwd()
    os.chdir(root)  # mypy's configuration is there
    try:
        files = [f"{SOURCES}/{module}.py" for module in modules]
        extensions = mypycify(
            # What they import has been checked with all that it needs; here only its types count.
            ["--follow-imports=silent", f"--cache-dir={folder / 'mypy'}", *files],
            opt_level="3",
            debug_level="0",
            target_dir=str(folder / "c"),
            group_name=GROUP,
        )
        command = build_ext(Distribution({"name": GROUP, "ext_modules": extensions, "package_dir": {"": SOURCES}}))
        command.build_lib = str(folder / "lib")
        command.build_temp = str(folder / "o")
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    return folder / "lib"
