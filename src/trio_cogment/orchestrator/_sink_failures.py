"""What is said of a data log's failure, whatever it was."""

from __future__ import annotations

from trio_cogment.errors import CogmentError, QuotaError, StatusCode, UnavailableError, status_of


def text_of(failure: Exception) -> str:
    """Return what a failure says: of one that nobody expected, its type too."""
    return str(failure) if isinstance(failure, CogmentError) else repr(failure)


def first_of(errors: BaseExceptionGroup[Exception]) -> Exception:
    """Return the first error of a group that is none itself."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error


def refusal_of(endpoint: str, failure: Exception) -> CogmentError:
    """Return why a trial cannot start whose data log has failed: trying again is of no use when a quota is used up."""
    full = status_of(failure)[0] is StatusCode.RESOURCE_EXHAUSTED
    return (QuotaError if full else UnavailableError)(f"datalog: {endpoint}: {text_of(failure)}")
