"""NumPy, which is an extra: whoever needs it and does not have it reads what to install."""

from __future__ import annotations

from trio_cogment.base.errors import MissingExtraError

try:
    import numpy as np
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    raise MissingExtraError.of("numpy", "arrays") from error

__all__ = ["np"]
