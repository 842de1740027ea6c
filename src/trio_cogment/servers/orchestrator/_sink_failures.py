"""Words for a data log's failure, whatever it was."""

from __future__ import annotations

from trio_cogment.base.errors import CogmentError, QuotaError, StatusCode, UnavailableError, status_of


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


#: What to do about a data log that is not there.
_REMEDY = (
    "the data log has to listen before a trial that names it starts: start it, or correct datalog.endpoint in the "
    "trial's parameters"
)


def refusal_of(endpoint: str, failure: Exception) -> CogmentError:
    """Return why a trial cannot start whose data log has failed: trying again is of no use when a quota is used up."""
    code = status_of(failure)[0]
    if code is StatusCode.RESOURCE_EXHAUSTED:
        return QuotaError(f"datalog: {endpoint}: {text_of(failure)}")
    return _unavailable(endpoint, text_of(failure), is_away=code is StatusCode.UNAVAILABLE)


def no_connection(endpoint: str, seconds: float) -> CogmentError:
    """Return why a trial cannot start whose data log has not answered in time."""
    return _unavailable(endpoint, f"no connection in {seconds:g} s", is_away=True)


def _unavailable(endpoint: str, text: str, *, is_away: bool) -> UnavailableError:
    # A datastore in this process is there; what fails then is its storage.
    advice = f"; {_REMEDY}" if is_away and endpoint.startswith("grpc://") else ""
    return UnavailableError(f"datalog: {endpoint}: {text}{advice}")
