"""The YAML of models and versions, as the reference writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo
from trio_cogment.base.errors import CogmentError

_NANOSECONDS = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)[Tt ]+(\d\d?):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?\s*(?:[Zz]|([+-])(\d\d?):?(\d\d)?)?"
)


class DocumentError(CogmentError):
    """A stored document cannot be understood."""


class _Time(str):
    """A moment, which is written without quotes: the reference reads nothing else as one."""


def _represent_text(dumper: Any, text: str) -> Any:
    # Left to itself the emitter writes some line breaks so that they are read as blanks.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


def _represent_time(dumper: Any, text: _Time) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:timestamp", str(text))


@cache
def _dumper() -> Any:
    import yaml  # a registry without models needs none

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(str, _represent_text)
    Dumper.add_representer(_Time, _represent_time)
    return Dumper


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def write_model(info: ModelInfo) -> bytes:
    """Return a model's document."""
    return _dump({"model_id": info.model_id, "user_data": dict(sorted(info.user_data.items()))})


def read_model(data: bytes) -> ModelInfo:
    """Return the model of a document.

    Raises:
        DocumentError: it is none.
    """
    fields = _load(data)
    return ModelInfo(model_id=_text(fields, "model_id"), user_data=_user_data(fields))


def write_version(info: ModelVersionInfo) -> bytes:
    """Return an archived version's document."""
    return _dump(
        {
            "model_id": info.model_id,
            "version_number": info.version_number,
            "creation_timestamp": _Time(time_text(info.creation_timestamp)),
            "data_hash": info.data_hash,
            "data_size": info.data_size,
            "user_data": dict(sorted(info.user_data.items())),
        }
    )


def read_version(data: bytes) -> ModelVersionInfo:
    """Return the version of a document, with `archived` set.

    Raises:
        DocumentError: it is none.
    """
    fields = _load(data)
    try:
        return ModelVersionInfo(
            model_id=_text(fields, "model_id"),
            version_number=int(_text(fields, "version_number")),
            creation_timestamp=time_of(_text(fields, "creation_timestamp")),
            archived=True,
            data_hash=_text(fields, "data_hash"),
            data_size=int(_text(fields, "data_size")),
            user_data=_user_data(fields),
        )
    except ValueError as error:
        raise DocumentError(str(error)) from None


def time_text(nanoseconds: int) -> str:
    """Return a moment in the form of RFC 3339, to the nanosecond."""
    seconds, rest = divmod(nanoseconds, _NANOSECONDS)
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def time_of(text: str) -> int:
    """Return a moment in nanoseconds since the epoch; 0 for one before that, as of no time at all.

    Raises:
        DocumentError: it is none.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise DocumentError(f"creation_timestamp: {text!r}: expected a time")
    *date_and_time, fraction, sign, hours, minutes = match.groups()
    year, month, day, hour, minute, second = map(int, date_and_time)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise DocumentError(f"creation_timestamp: {text!r}: expected a time") from None
    seconds = round((moment - _EPOCH).total_seconds())
    away = int(hours or 0) * 3600 + int(minutes or 0) * 60
    seconds -= -away if sign == "-" else away
    return max(0, seconds * _NANOSECONDS + int((fraction or "").ljust(9, "0")))


def _dump(fields: dict[str, Any]) -> bytes:
    import yaml

    text: str = yaml.dump(fields, Dumper=_dumper(), allow_unicode=True, sort_keys=False, width=1 << 30)
    return text.encode()


def _load(data: bytes) -> Mapping[str, Any]:
    import yaml

    try:
        fields = yaml.load(data, Loader=_loader())  # noqa: S506 RUF100  a loader that makes nothing but texts
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as error:
        raise DocumentError(f"no YAML: {type(error).__name__}") from None
    if not isinstance(fields, dict):
        raise DocumentError("expected a mapping")
    return fields


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise DocumentError(f"{name}: expected a value")
    return value


def _user_data(fields: Mapping[str, Any]) -> dict[str, str]:
    found = fields.get("user_data") or {}
    if found in ("null", "~"):
        return {}
    # Names are texts in any case: the loader makes nothing else of what can be one.
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise DocumentError("user_data: expected texts")
    return found
