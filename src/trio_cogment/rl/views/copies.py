"""Copies of views, and pickled ones: a view is made again, from the arguments from which it was made.

A copy begins without an episode, and its environment with a generator of its own. In the thread of the view that it
is a copy of, it shares that one's platform, and so its store; elsewhere it opens one with the same options.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.rl.views.match import Match
from trio_cogment.rl.views.sharing import platform_of, token_of
from trio_cogment.seats.base import Seat
from trio_cogment.spaces.base import described


class NotPicklableError(InvalidArgumentError, pickle.PicklingError, TypeError):
    """An argument from which a view was made cannot be pickled, so the view cannot be made again."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a view was made.

    Attributes:
        match: of the view: its environment's name is for errors, and its platform tells where the trials run.
        make: the function: `make`, `make_vec`, `make_parallel` or `make_aec`.
        environment: its first argument.
        seats: its argument.
        settings: further arguments of its own, but those that say where the trials run.
        arguments: those of the environment.
    """

    match: Match
    make: Callable[..., Any]
    environment: Any
    seats: Mapping[str, Seat] | None
    settings: dict[str, Any]
    arguments: dict[str, Any]

    def pickled(self) -> bytes:
        """Return what `made_again` takes.

        Raises:
            NotPicklableError: an argument cannot be pickled; the text says which.
        """
        import cloudpickle  # Gymnasium needs it, too

        options = self.match.platform.options
        for field in ("store", "model_registry"):
            given = getattr(options, field)
            if not (given is None or isinstance(given, str | os.PathLike)):
                # A copy of the object would be another store.
                raise self._error(field, "a text that says where it is", given)
        arguments = self.make, self.environment, self.seats, self.settings, self.arguments
        try:
            found: bytes = cloudpickle.dumps((*arguments, options, token_of(self.match.platform)))
        except Exception as error:  # whatever the pickling of the user's objects raises
            for field, value in self._parts():
                try:
                    cloudpickle.dumps(value)
                except Exception as reason:
                    raise self._error(field, "what can be pickled", value, reason) from reason
            raise self._error("arguments", "what can be pickled together", self.arguments, error) from error
        return found

    def _error(self, field: str, expected: str, got: Any, reason: Exception | None = None) -> NotPicklableError:
        why = "" if reason is None else f": {type(reason).__name__}: {reason}"
        return NotPicklableError(
            f"environment {self.match.name!r}: {field}: expected {expected}, because a copy of the view is made from "
            f"it; got {described(got)}{why}"
        )

    def _parts(self) -> Iterator[tuple[str, Any]]:
        yield "environment", self.environment
        for agent, seat in (self.seats or {}).items():
            yield f"seats[{agent!r}]", seat
        options = self.match.platform.options
        yield from ((field.name, getattr(options, field.name)) for field in fields(options))
        yield from self.settings.items()
        yield from self.arguments.items()


def made_again(content: bytes) -> Any:
    """Return a view that is made like another one.

    Args:
        content: what `Recipe.pickled` returned.

    Raises whatever the function raises that makes it.
    """
    make, environment, seats, settings, arguments, options, token = pickle.loads(content)
    shared = platform_of(token)
    where = {"options": options} if shared is None else {"platform": shared}
    return make(environment, seats=seats, **settings, **where, **arguments)


class Remade:
    """The part of a view that lets it be copied and pickled.

    Attributes:
        recipe: how it was made; None if it was made of a match, as no public function does.
    """

    recipe: Recipe | None = None

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        if self.recipe is None:
            raise NotPicklableError(f"{type(self).__name__}: expected one that make, make_vec or the like has made")
        return made_again, (self.recipe.pickled(),)
