"""Errors of a storage: what callers learn of them, and what only the log says."""

from __future__ import annotations

import errno

import pytest

from trio_cogment.base.errors import CogmentError, ResourceExhaustedError, UnavailableError
from trio_cogment.servers.model_registry._transfers import storage_errors

BROKEN = OSError(errno.EIO, "Input/output error", "/secret/path")


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (BROKEN, UnavailableError, "reading: the storage failed: Input/output error"),
        (OSError("what only the store knows"), UnavailableError, "reading: the storage failed: unknown error"),
        (OSError(errno.ENOSPC, "full", "/secret/path"), ResourceExhaustedError, "reading: there is no room left"),
        (OSError(errno.EDQUOT, "full", "/secret/path"), ResourceExhaustedError, "reading: there is no room left"),
    ],
)
def test_callers_learn_what_happened_and_the_log_says_where(
    error: OSError, kind: type[CogmentError], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(kind, match=f"^{told}") as caught, storage_errors("reading"):
        raise error
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is error
    (record,) = caplog.records
    assert record.getMessage() == f"model registry: reading: {error}"
    assert record.levelname == "ERROR"


def test_whoever_starts_the_registry_sees_the_path_at_once(caplog: pytest.LogCaptureFixture) -> None:
    told = r"^opening: the storage failed: Input/output error \(/secret/path\)$"
    with pytest.raises(UnavailableError, match=told), storage_errors("opening", log=False):
        raise BROKEN
    assert not caplog.records


def test_a_name_that_is_taken_is_no_failure_of_the_storage(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(FileExistsError), storage_errors("storing"):
        raise FileExistsError(errno.EEXIST, "it exists", "name")
    assert not caplog.records
