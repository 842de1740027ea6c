"""The search path of the programs that `run` and `launch` start."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Mapping


def search_path(environment: Mapping[str, str]) -> str:
    """Return PATH with the programs of this installation behind all others.

    So scripts find `cogment`, `trio-cogment` and `python` even if the environment is not activated.
    """
    return os.pathsep.join([environment.get("PATH", os.defpath), sysconfig.get_path("scripts")])
