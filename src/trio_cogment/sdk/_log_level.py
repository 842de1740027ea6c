"""The environment variable that sets the level of the log."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from trio_cogment.base.errors import InvalidArgumentError

VARIABLE = "COGMENT_LOG_LEVEL"
LEVELS = {
    "off": logging.CRITICAL + 1,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": 5,
}


def apply_log_level(variables: Mapping[str, str] | None = None) -> None:
    """Set the level of the logger `trio_cogment` to that of `COGMENT_LOG_LEVEL`; without it nothing changes.

    Args:
        variables: the environment variables; the process's unless given.

    Raises:
        InvalidArgumentError: the variable has another value.
    """
    text = (os.environ if variables is None else variables).get(VARIABLE, "")
    if not text:
        return
    if text.lower() not in LEVELS:
        raise InvalidArgumentError(f"{VARIABLE}: expected one of {', '.join(LEVELS)}, got {text!r}")
    logging.getLogger("trio_cogment").setLevel(LEVELS[text.lower()])
