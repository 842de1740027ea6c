"""Checks the types of the JavaScript in the package, which are written as JSDoc: by `tsc`.

Modules import each other by relative paths, as they are served. So they are laid out in a folder in that way, with the
types of the vendored libraries in place of these.

Needs npm: TypeScript and those types are installed into that folder, which is the argument.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from vendor_js import PACKAGES

SOURCE = Path(__file__).resolve().parent.parent / "src" / "trio_cogment"
TYPESCRIPT = "typescript@5.9.3"
#: Where the types of vendored libraries are among packages, and whether these have a default export.
VENDORED = {
    "preact": ("preact/src/index", False),
    "preact-hooks": ("preact/hooks/src/index", False),
    "htm": ("htm/dist/htm", True),
    "uplot": ("uplot/dist/uPlot", True),
}


def folders() -> list[Path]:
    """Return the folders of assets, each of which is served at a path of its own."""
    return sorted(path for path in SOURCE.rglob("assets") if path.is_dir())


def path_of(folder: Path) -> str:
    """Return the path at which a folder is served."""
    room = folder.relative_to(SOURCE).parts[0]
    return "/assets" if room == "web" else f"/{room}/assets"


def lay_out(site: Path, modules: Path) -> None:
    """Put the modules where they are served.

    Args:
        site: the folder; what is in it is replaced.
        modules: where npm has installed packages.
    """
    shutil.rmtree(site, ignore_errors=True)
    for folder in folders():
        there = site / path_of(folder).removeprefix("/")
        there.mkdir(parents=True)
        for module in folder.glob("*.js"):
            shutil.copy(module, there)
    vendor = site / "assets" / "vendor"
    vendor.mkdir()
    for name, (types, has_default) in VENDORED.items():
        lines = [f'export * from "{modules / types}";\n', f'export {{ default }} from "{modules / types}";\n']
        (vendor / f"{name}.d.ts").write_text("".join(lines if has_default else lines[:1]))


def settings(site: Path) -> dict[str, object]:
    """Return the settings of `tsc`.

    Args:
        site: where the modules are.
    """
    return {
        "compilerOptions": {
            "allowJs": True,
            "checkJs": True,
            "noEmit": True,
            "strict": True,
            "noUnusedLocals": True,
            "target": "ES2023",
            "module": "ESNext",
            "moduleResolution": "bundler",
            "allowImportingTsExtensions": True,
            "lib": ["ES2023", "DOM", "DOM.Iterable"],
            "types": [],
            "skipLibCheck": True,
        },
        "include": [f"{site}/**/*.js"],
    }


def main() -> None:
    """Install what is needed, and check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [TYPESCRIPT, *(f"{package.name}@{package.version}" for package in PACKAGES)]
    marker = folder / "installed"
    if not (marker.exists() and marker.read_text() == " ".join(wanted)):
        npm = ["npm", "--prefix", str(folder), "--no-fund", "--no-audit", "--silent", "install"]
        subprocess.run([*npm, *wanted], check=True)
        marker.write_text(" ".join(wanted))
    modules = folder / "node_modules"
    config = folder / "tsconfig.json"
    site = folder / "site"
    lay_out(site, modules)
    config.write_text(json.dumps(settings(site), indent=2))
    done = subprocess.run(["node", str(modules / "typescript" / "bin" / "tsc"), "-p", str(config)], check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
