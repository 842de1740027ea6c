"""Checks the types of the JavaScript in the package, which are written as JSDoc: by `tsc`, without writing anything.

Needs npm: TypeScript and the types of the vendored libraries are installed into a folder, which is the argument.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from vendor_js import PACKAGES

SOURCE = Path(__file__).resolve().parent.parent / "src" / "trio_cogment"
TYPESCRIPT = "typescript@5.9.3"


def folders() -> list[Path]:
    """Return the folders of assets, each of which is served at a path of its own."""
    return sorted(path for path in SOURCE.rglob("assets") if path.is_dir())


def path_of(folder: Path) -> str:
    """Return the path at which a folder is served."""
    room = folder.relative_to(SOURCE).parts[0]
    return "/assets" if room == "web" else f"/{room}/assets"


def settings(modules: Path) -> dict[str, object]:
    """Return the settings of `tsc`.

    Args:
        modules: where npm has installed packages.
    """
    vendored = {
        "/assets/vendor/preact.js": modules / "preact" / "src" / "index",
        "/assets/vendor/preact-hooks.js": modules / "preact" / "hooks" / "src" / "index",
        "/assets/vendor/htm.js": modules / "htm" / "dist" / "htm.d.ts",
        "/assets/vendor/uplot.js": modules / "uplot" / "dist" / "uPlot.d.ts",
    }
    paths = {name: [str(place)] for name, place in vendored.items()}
    paths |= {f"{path_of(folder)}/*": [f"{folder}/*"] for folder in folders()}
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
            "paths": paths,
        },
        "include": [f"{folder}/*.js" for folder in folders()],
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
    config.write_text(json.dumps(settings(modules), indent=2))
    done = subprocess.run(["node", str(modules / "typescript" / "bin" / "tsc"), "-p", str(config)], check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
