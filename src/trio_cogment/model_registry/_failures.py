"""What the failures of blocking functions mean to a caller."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from trio_cogment.errors import ResourceExhaustedError, UnavailableError

logger = logging.getLogger(__name__)

_NO_ROOM = frozenset([errno.ENOSPC, errno.EDQUOT])


@contextmanager
def storage_errors(doing: str, *, log: bool = True) -> Iterator[None]:
    """Turn what the storage raises into what a caller is told; the log has the rest, unless the caller is our host.

    Raises:
        ResourceExhaustedError: there is no room.
        UnavailableError: anything else is wrong.
        FileExistsError: as it is; whoever may meet one knows what to do.
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
            reason += f" ({error.filename})"  # our host may know
        raise UnavailableError(f"{doing}: the storage failed: {reason}") from error
