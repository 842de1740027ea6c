"""Environments from what users have: an id, a name, a function, or an object of one of the field's interfaces."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from trio_cogment.base.errors import CogmentError, InvalidArgumentError, MissingExtraError, NotFoundError
from trio_cogment.environments.base import Environment, EnvironmentMaker
from trio_cogment.environments.errors import EnvironmentFailedError
from trio_cogment.environments.known_wrappers import note_known_wrappers
from trio_cogment.environments.names import FAMILIES, MODULE, MODULE_VERSION, has_moved, modules_of, suggestion_for
from trio_cogment.spaces.base import described

#: An id, a name, an environment, or a function that makes one.
Target: TypeAlias = str | Callable[..., Any] | Any

#: The first that an environment has is chosen for people who watch.
_PICTURE_MODES = ("rgb_array", "ansi")
_INTERFACES = (
    ("gymnasium", "Env"),
    ("pettingzoo", "ParallelEnv"),
    ("pettingzoo", "AECEnv"),
    ("dm_env", "Environment"),
)


def make_environment(target: Target, **arguments: Any) -> Environment:
    """Return an environment for trials.

    Args:
        target: an id of Gymnasium (`CartPole-v1`, `module:Name-v0`), an id or a name of PettingZoo (`classic/rps-v2`,
            `rps_v2`, a module with `parallel_env` or `env`), a name of a package with an adapter of
            its own (`openspiel/kuhn_poker`, `textarena/Nim-v0`, `envpool/Pong-v5`, `dm_control/cartpole-swingup`,
            `meltingpot/clean_up`, `vmas/balance`), an environment of Gymnasium, PettingZoo or dm_env, or a function
            that returns one of these.
        arguments: with which it is made.

    Raises:
        NotFoundError: there is no environment of that name.
        MissingExtraError: the package that has it is not installed.
        InvalidArgumentError: it is nothing of that kind, or an object, which takes no arguments.
        InvalidEnvironmentError: one of its spaces has no counterpart.
        Exception: whatever the environment itself raised.
    """
    if isinstance(target, str):
        return wrap(_by_name(target, arguments))
    found = wrap_if_known(target)
    if found is not None:
        if arguments:
            raise InvalidArgumentError(
                f"environment {found.name!r}: arguments: expected none, because it is made already; got "
                f"{', '.join(map(repr, arguments))}"
            )
        return found
    if callable(target):
        return wrap(target(**arguments))
    raise _unknown(target)


def maker_of(target: Target, **arguments: Any) -> EnvironmentMaker:
    """Return a function that makes such environments; see `make_environment`.

    Arguments of each call take precedence. An environment that is made already is returned once; after that, only one
    of Gymnasium that knows how it was made can be made again.
    """
    again = repeatable(target)
    return lambda **further: make_environment(again, **{**arguments, **further})


def repeatable(target: Target) -> Target:
    """Return a target that can be made several times, if that is possible; see `maker_of`."""
    return Again(target) if is_made(target) else target


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an environment is made; a process of its own gets it pickled.

    Attributes:
        target: see `make_environment`.
        arguments: with which it is made.
        pictures: somebody wants to see it: if the arguments name no `render_mode`, one that returns pictures is chosen.
    """

    target: Target
    arguments: dict[str, Any]
    pictures: bool = False

    @property
    def name(self) -> str:
        """What the environment is called as long as it has not been made."""
        if isinstance(self.target, str):
            return self.target
        return str(getattr(self.target, "__name__", type(self.target).__name__))

    def make(self) -> Environment:
        """Make an environment.

        Raises:
            CogmentError: see `make_environment`.
            EnvironmentFailedError: the environment itself raised.
        """
        try:
            return self._made()
        except CogmentError:
            raise
        except (Exception, SystemExit) as error:  # the boundary of the user's environment
            raise EnvironmentFailedError(f"environment {self.name!r}: {type(error).__name__}: {error}") from error

    def _made(self) -> Environment:
        make = make_to_watch if self.pictures else make_environment
        return make(self.target, **self.arguments)


def make_to_watch(target: Target, **arguments: Any) -> Environment:
    """Return an environment that somebody wants to see; see `make_environment`.

    If the arguments name no `render_mode`, one that returns pictures is chosen, where it has one.
    """
    environment = make_environment(target, **arguments)
    if environment.metadata.get("render_mode") or not _takes_render_mode(target):
        return environment
    offered = environment.metadata.get("render_modes") or ()
    mode = next((mode for mode in _PICTURE_MODES if mode in offered), None)
    if mode is None:
        return environment
    # Only one that has been made tells its modes.
    environment.close()
    return make_environment(target, **{**arguments, "render_mode": mode})


def _takes_render_mode(target: Target) -> bool:
    if isinstance(target, str):
        return True
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(one.name == "render_mode" or one.kind is one.VAR_KEYWORD for one in parameters)


class Again:
    """Returns an environment that is made already, and then others that are made as it was."""

    def __init__(self, environment: Any) -> None:
        self._environment: Any = environment
        self._spec: Any = getattr(environment, "spec", None)
        self.__name__ = str(getattr(self._spec, "id", None) or type(environment).__name__)

    def __call__(self, **arguments: Any) -> Environment:
        """Return the environment, and from the second call on another; see `make_environment`."""
        environment, self._environment = self._environment, None
        if environment is not None:
            return make_environment(environment, **arguments)
        if not hasattr(self._spec, "make"):
            raise InvalidArgumentError(
                "environment: expected an id or a function that makes it, to make another; got one that is made already"
            )
        return make_environment(lambda: self._spec.make(**arguments))


def wrap(environment: Any, name: str = "") -> Environment:
    """Return an environment of one of the field's interfaces as one for trials.

    Raises:
        InvalidArgumentError: it has none of these interfaces.
        InvalidEnvironmentError: one of its spaces has no counterpart.
    """
    found = wrap_if_known(environment, name)
    if found is None:
        raise _unknown(environment)
    return found


def wrap_if_known(environment: Any, name: str = "") -> Environment | None:
    """Return what `wrap` does; None if it has none of the interfaces."""
    note_known_wrappers(environment)
    if _is_instance(environment, "gymnasium", "Env"):
        from trio_cogment.environments.gymnasium import GymnasiumEnvironment

        return GymnasiumEnvironment(environment, name=name)
    if _is_instance(environment, "pettingzoo", "ParallelEnv"):
        from trio_cogment.environments.pettingzoo import ParallelEnvironment

        return ParallelEnvironment(environment, name=name)
    if _is_instance(environment, "pettingzoo", "AECEnv"):
        from trio_cogment.environments.pettingzoo import AECEnvironment

        return AECEnvironment(environment, name=name)
    if _is_instance(environment, "dm_env", "Environment"):
        from trio_cogment.environments.dm_env import wrapped

        return wrapped(environment, name)
    return environment if _is_ours(environment) else None


def is_made(target: Target) -> bool:
    """Whether a target is an environment, and not what makes one."""
    return _is_ours(target) or any(_is_instance(target, module, kind) for module, kind in _INTERFACES)


def _is_instance(value: Any, module: str, name: str) -> bool:
    """Whether it is of a class of a module; whoever has such an object has imported the module."""
    found = sys.modules.get(module)
    kind = getattr(found, name, None)
    return kind is not None and isinstance(value, kind)


def _is_ours(value: Any) -> bool:
    return not isinstance(value, type) and all(
        hasattr(value, name) for name in ("observation_spaces", "action_spaces", "agents", "frame", "over")
    )


def _unknown(value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        "environment: expected an id, an environment of Gymnasium, PettingZoo or dm_env, or a function that makes one; "
        f"got {described(value)}"
    )


# By name


def _by_name(target: str, arguments: dict[str, Any]) -> Any:
    of_family = _of_family(target, arguments)
    if of_family is not None:
        return of_family
    if MODULE.fullmatch(target):
        return _of_pettingzoo(target, arguments)
    gymnasium = _package("gymnasium", "gym")
    try:
        gymnasium.envs.registration.parse_env_id(target.rpartition(":")[2])
    except gymnasium.error.Error as error:
        raise NotFoundError(f"environment {target!r}: {error}") from None
    try:
        # Its checks are those of `GymnasiumEnvironment`.
        return gymnasium.make(target, **{"disable_env_checker": True, **arguments})
    except gymnasium.error.UnregisteredEnv as error:
        found = _of_registry(target, arguments) if "/" in target else None
        if found is not None:
            return found
        if target.partition("/")[0] in FAMILIES:
            _package("pettingzoo", "pettingzoo")
        raise _not_found(target, error) from None
    except gymnasium.error.DeprecatedEnv as error:
        raise NotFoundError(f"environment {target!r}: {error}") from None
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtraError(f"environment {target!r}: {error}") from error
    except ModuleNotFoundError as error:
        module = target.partition(":")[0]
        # Gymnasium raises another of its own.
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name is not None and f"{module}.".startswith(cause.name):
            raise NotFoundError(f"environment {target!r}: there is no module {cause.name!r}") from None
        raise


def _of_family(target: str, arguments: dict[str, Any]) -> Environment | None:
    """Return an environment of a package that has an adapter of its own; None for others."""
    family = target.partition("/")[0] if "/" in target else ""
    if family == "openspiel":
        from trio_cogment.environments.openspiel import OpenSpielEnvironment

        return OpenSpielEnvironment(target, **arguments)
    if family == "textarena":
        from trio_cogment.environments.textarena import TextArenaEnvironment

        return TextArenaEnvironment(target, **arguments)
    if family == "envpool":
        from trio_cogment.environments.envpool import EnvPoolEnvironment

        return EnvPoolEnvironment(target, **arguments)
    if family == "vmas":
        from trio_cogment.environments.vmas import VmasEnvironment

        return VmasEnvironment(target, **arguments)
    if family == "dm_control" and not MODULE_VERSION.search(target):  # with a version it is Shimmy's, of Gymnasium
        from trio_cogment.environments.dm_env import of_control_suite

        return of_control_suite(target, arguments)
    if family == "meltingpot":
        from trio_cogment.environments.dm_env import of_melting_pot

        return of_melting_pot(target, arguments)
    return None


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingExtraError.of(name, extra) from error


def _of_pettingzoo(target: str, arguments: dict[str, Any]) -> Any:
    _package("pettingzoo", "pettingzoo")
    _require_one_meaning(target, arguments)
    for name in [target] if "." in target else modules_of(target):
        module = _module(name, target)
        if module is not None:
            return _of_module(module, arguments)
    families = ", ".join(f"pettingzoo.{family}" for family in FAMILIES)
    raise _not_found(target, f"expected a module, or one of {families}; none of them has it")


def _not_found(target: str, reason: object) -> NotFoundError:
    """Return the error that says which environment may have been meant; else why there is none."""
    meant = suggestion_for(target)
    # Gymnasium knows its own names, and what they were meant for.
    knows = any(text in str(reason) for text in ("Did you mean", "It provides"))
    text = f"there is none of that name; {meant}" if meant and not knows else reason
    return NotFoundError(f"environment {target!r}: {text}")


def _module(name: str, target: str) -> Any:
    """Return a module; None if there is none of that name."""
    try:
        with warnings.catch_warnings():
            # PettingZoo 1.27 says that its registry is to be used, which older ones do not have.
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        if name.startswith("pettingzoo."):
            raise _missing(target, error, name.split(".")[1]) from error
        raise
    except ImportError:
        if has_moved(name):
            return None  # what is left of it only says so
        raise


def _missing(target: str, error: BaseException, extra: str) -> MissingExtraError:
    return MissingExtraError(f"environment {target!r}: {error}: pip install 'pettingzoo[{extra}]'")


def _require_one_meaning(target: str, arguments: dict[str, Any]) -> None:
    """Raise if a limit means one thing by an id of PettingZoo, and another by its module."""
    limit = arguments.get("max_cycles")
    if isinstance(limit, int) and limit < 0:
        raise InvalidArgumentError(
            f"environment {target!r}: max_cycles: expected a positive number; {limit} does not disable it in "
            "PettingZoo: the game's own limit holds, or its first step is the last"
        )


def _of_module(module: Any, arguments: dict[str, Any]) -> Any:
    for attribute in ("parallel_env", "env"):
        make = getattr(module, attribute, None)
        if make is not None:
            return make(**arguments)
    raise NotFoundError(f"environment {module.__name__!r}: expected a function parallel_env or env in the module")


def _of_registry(target: str, arguments: dict[str, Any]) -> Any:
    """Make an environment of PettingZoo's registry, which came with 1.27; None if it has none of that id."""
    try:
        import pettingzoo
        from pettingzoo.env_registry.exceptions import FailedToImport, PettingZooRegistryError
    except ModuleNotFoundError:
        return None
    for kind in ("parallel", "aec"):
        try:
            pettingzoo.spec(kind, target)
        except PettingZooRegistryError:
            continue
        _require_one_meaning(target, arguments)
        try:
            return pettingzoo.make(kind, target, **arguments)
        except FailedToImport as error:
            raise _missing(target, error.__cause__ or error, target.partition("/")[0]) from error
    return None
