"""The errors of the storage, and what callers get for them."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from trio_cogment.base.errors import ResourceExhaustedError, UnavailableError

logger = logging.getLogger(__name__)

_NO_ROOM = frozenset([errno.ENOSPC, errno.EDQUOT])


@contextmanager
def storage_errors(doing: str, *, log: bool = True) -> Iterator[None]:
    """Translate the errors of the storage for a caller. Details are logged; without `log` they are in the error.

    Raises:
        ResourceExhaustedError: the storage is full.
        UnavailableError: it failed in another way.
        FileExistsError: passed through, as callers that can get one handle it.
    """
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        if log:
            logger.error("model registry: %s: %s", doing, error)
        if error.errno in _NO_ROOM:
            raise ResourceExhaustedError(f"{doing}: there is no room left in the storage") from error
        reason = os.strerror(error.errno) if error.errno else "unknown error"
        if error.filename and not log:
            reason += f" ({error.filename})"  # whoever starts the registry may see the path
        raise UnavailableError(f"{doing}: the storage failed: {reason}") from error
