"""Names of PettingZoo's environments: where their modules are, and which one a name that nothing has was meant for."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trio_cogment.base.suggestions import similar

#: Where PettingZoo keeps its environments.
FAMILIES = ("classic", "butterfly", "atari", "mpe", "sisl", "magent")
#: What environments are called there: `rps_v2`, `pettingzoo.classic.rps_v2`.
MODULE = re.compile(r"(?:\w+\.)*\w+_v\d+")
#: What the ids of Gymnasium end with.
MODULE_VERSION = re.compile(r"-v\d+$")
#: Families that have become packages of their own, with the place of their modules there.
_MOVED = {"mpe": ("mpe2", "mpe2"), "magent": ("magent2", "magent2.environments")}
_NAME = re.compile(r"(?:(?P<place>.+)[/.])?(?P<base>[^/.]+?)(?:[-_]v\d+)?")
_FILE = re.compile(r"(?P<base>\w+)_v(?P<version>\d+)\.py")


@dataclass(frozen=True, slots=True)
class _Known:
    """An environment whose module is installed."""

    place: str
    base: str
    version: int

    @property
    def is_of_pettingzoo(self) -> bool:
        return self.place.startswith("pettingzoo.")

    def called_like(self, target: str) -> str:
        """Return its name in the form that somebody has used: that of a module, or that of an id."""
        module = f"{self.base}_v{self.version}"
        if not self.is_of_pettingzoo or ("." in target and MODULE.fullmatch(target)):
            return f"{self.place}.{module}"
        identifier = f"{self.place.rpartition('.')[2]}/{self.base}-v{self.version}"
        return module if MODULE.fullmatch(target) or not _is_registered(identifier) else identifier


def modules_of(name: str) -> list[str]:
    """Return the modules of PettingZoo that are called like this: `pettingzoo.classic.rps_v2` for `rps_v2`.

    Their packages are not imported to see what they have: one of them raises if it is.
    """
    return [
        f"pettingzoo.{family}.{name}"
        for family in FAMILIES
        if any((folder / family / f"{name}.py").exists() for folder in _folders("pettingzoo"))
    ]


def has_moved(module: str) -> bool:
    """Tell whether a module is of a family that has become a package of its own."""
    return module.startswith(tuple(f"pettingzoo.{family}." for family in _MOVED))


def suggestion_for(target: str) -> str:
    """Return what an error says of a name that nothing has: `did you mean ...?`; empty if nothing is like it."""
    found = _NAME.fullmatch(target)
    if found is None:
        return ""
    place, base = found["place"] or "", found["base"].replace("-", "_")
    family = place.lower().removeprefix("pettingzoo").strip(".")
    if base.partition("_")[0] == "simple" and MODULE.fullmatch(target) and not place and not _folders("mpe2"):
        family = "mpe"  # no other environment of PettingZoo is called so
    if family in _MOVED:
        package, modules = _MOVED[family]
        version = re.search(r"[-_](v\d+)$", target)
        name = f"{modules}.{base.lower()}_{version[1] if version else 'v...'}"
        return f"PettingZoo's {family} has become the package {package} (pip install {package}); did you mean {name!r}?"
    # Other packages have namespaces of their own, and their names have capitals.
    if place and similar(family or "classic", [*FAMILIES, *(package for package, _ in _MOVED.values())]) is None:
        return ""
    # Games of Atari that are written with a capital are those of another package, ALE/Pong-v5.
    is_plain = bool(place) or base == base.lower()
    known = [one for one in _installed() if is_plain or one.place != "pettingzoo.atari"]
    by_base = {one.base: one for one in sorted(known, key=lambda one: one.version)}
    close = {name.replace("_", ""): name for name in by_base}.get(base.lower().replace("_", ""))  # ConnectFour, too
    if close is None and is_plain:
        close = similar(base.lower(), by_base, cutoff=0.75)
    return "" if close is None else f"did you mean {by_base[close].called_like(target)!r}?"


def _installed() -> Iterator[_Known]:
    places = [(f"pettingzoo.{family}", "pettingzoo", family) for family in FAMILIES]
    places += [(modules, package, modules.partition(".")[2]) for package, modules in _MOVED.values()]
    for place, package, below in places:
        for folder in _folders(package):
            for file in sorted((folder / below).glob("*_v*.py")):
                found = _FILE.fullmatch(file.name)
                if found is not None:
                    yield _Known(place, found["base"], int(found["version"]))


def _folders(package: str) -> list[Path]:
    """Return the folders of a package, without importing it; none if it is not installed."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []


def _is_registered(identifier: str) -> bool:
    """Tell whether PettingZoo's registry, which came with 1.27, has an id."""
    try:
        from pettingzoo.env_registry.registration import aec_registry, parallel_registry
    except ModuleNotFoundError:
        return False
    return identifier in aec_registry or identifier in parallel_registry
