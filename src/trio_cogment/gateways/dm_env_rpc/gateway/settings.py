"""The settings of a request, taken one by one; what nobody has taken is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.gateways.dm_env_rpc.gateway import setting_values as values
from trio_cogment.gateways.dm_env_rpc.gateway.config_fields import UnknownFieldError, excluded_by, set_field
from trio_cogment.gateways.dm_env_rpc.gateway.setting_values import NotThatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Taken = TypeVar("Taken")

#: What follows a prefix in the names of settings that are fields.
_FIELD = "<field>"


class Settings:
    """The settings of one request.

    Args:
        request: its name, for errors.
        tensors: the settings as they came.
    """

    def __init__(self, request: str, tensors: Mapping[str, pb.Tensor]) -> None:
        self._request = request
        self._left = dict(tensors)
        self._known: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there are settings that nobody has taken."""
        return bool(self._left)

    def knows(self, name: str) -> bool:
        """Whether somebody has asked for a setting of this name."""
        prefixes = tuple(each.removesuffix(_FIELD) for each in self._known if each.endswith(_FIELD))
        return name in self._known or (name.startswith(prefixes) and name not in prefixes)

    def require(self, names: Iterable[str]) -> None:
        """Refuse the request if one of these settings is missing.

        Raises:
            InvalidArgumentError: it names them.
        """
        missing = sorted(set(names) - self._left.keys())
        if missing:
            needed = ", ".join(map(repr, missing))
            raise InvalidArgumentError(f"{self._request}: expected the setting {needed}, got none")

    def take(self, name: str, read: Callable[[NDArray[Any]], Taken]) -> Taken | None:
        """Return the value of a setting, None if it was not given.

        Args:
            name: of the setting.
            read: what turns it into a value; it raises `NotThatError`.

        Raises:
            InvalidArgumentError: the value is not of this kind; the text names the setting.
        """
        self._known.add(name)
        if name not in self._left:
            return None
        array = values.array_of(name, self._left.pop(name))
        try:
            return read(array)
        except NotThatError as error:
            raise values.refused(name, error, array) from None

    def text(self, name: str) -> str | None:
        """Return a string; see `take`."""
        return self.take(name, values.text)

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        """Return one of some strings; see `take`."""
        return self.take(name, lambda value: chosen(value, choices))

    def integer(self, name: str, least: int, most: int) -> int | None:
        """Return an integer; see `take`."""
        return self.take(name, lambda value: values.integer(value, least, most))

    def fill(self, prefix: str, message: Any) -> bool:
        """Set fields of a message from all settings whose names begin with a prefix; return whether there were any.

        Raises:
            InvalidArgumentError: there is no such field, or the value is not of its type.
        """
        names = [name for name in self._left if name.startswith(prefix)]
        # In the order of the names, so that a mistake is always the same one.
        for name in sorted(names):
            array = values.array_of(name, self._left.pop(name))
            try:
                set_field(message, name.removeprefix(prefix), array)
            except NotThatError as error:
                raise values.refused(name, error, array) from None
            except UnknownFieldError as error:
                raise InvalidArgumentError(f"setting {name!r}: {error}") from None
        for name in sorted(names):
            other = excluded_by(message, name.removeprefix(prefix))
            if other is not None:
                raise InvalidArgumentError(
                    f"setting {name!r}: there is one for {other!r}, too, and they exclude each other"
                )
        self._known.add(f"{prefix}{_FIELD}")
        return bool(names)

    def refuse(self, prefix: str, reason: str) -> None:
        """Refuse all settings whose names begin with a prefix.

        Raises:
            InvalidArgumentError: there is one.
        """
        for name in sorted(self._left):
            if name.startswith(prefix):
                raise InvalidArgumentError(f"setting {name!r}: {reason}")

    def finish(self) -> None:
        """Refuse what nobody has taken.

        Raises:
            InvalidArgumentError: there is such a setting; the text says which there are.
        """
        for name in sorted(self._left):
            advice = suggestion(name, sorted(self._known))
            raise InvalidArgumentError(f"{self._request}: unknown setting {name!r}; {advice}")


def chosen(value: NDArray[Any], choices: Collection[str]) -> str:
    """Return a scalar STRING that is one of some.

    Raises:
        NotThatError: it is none of them.
    """
    if not value.ndim and value.dtype.kind == "U" and value.item() in choices:
        return str(value.item())
    raise NotThatError(f"one of {', '.join(map(repr, choices))}")
