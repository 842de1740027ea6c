"""A branch of a stored trial as an environment: each episode begins at one of its ticks, with whom one likes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.rl_pb2 import EnvironmentConfig
from trio_cogment.api.spaces_pb2 import Observation
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from trio_cogment.base.taking_up import Past
from trio_cogment.environments.base import Environment
from trio_cogment.environments.env_specs import NOT_WRITABLE, recovered_spec
from trio_cogment.environments.spec import PLAYER
from trio_cogment.rl.views.copies import Recipe
from trio_cogment.rl.views.match import BranchPoint, Match
from trio_cogment.rl.views.options import PlatformOptions, is_address
from trio_cogment.rl.views.parameters import RemoteEnvironment, is_remote
from trio_cogment.rl.views.sharing import platform_for
from trio_cogment.seats.base import Seat
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.values import decode_fields

_PASS = "pass environment=, as to make"

if TYPE_CHECKING:
    from trio_cogment.rl.views.aec import TrialAECEnv
    from trio_cogment.rl.views.gymnasium import TrialEnv
    from trio_cogment.rl.views.parallel import TrialParallelEnv


def branch(
    store: Any,
    trial_id: str,
    *,
    tick: int,
    seats: Mapping[str, Seat] | None = None,
    seat: str = "",
    environment: Any = None,
    implementation: str = "",
    render_mode: str | None = None,
    options: PlatformOptions | None = None,
    model_registry: Any = None,
    directory: Any = None,
    thread: bool | None = None,
    **arguments: Any,
) -> Any:  # which of the three is not known before the trial is read
    """Return an environment whose episodes go on with a stored trial at one of its ticks.

    Each `reset` begins a new trial, whose first tick is `tick` and whose properties say of which trial it is a branch.
    It returns the observations of that tick: the environment is given its checkpoint, or is played again up to there.

    Args:
        store: keeps the trial, and the new ones: `sqlite:PATH`, `grpc://host:port` and so on, as for `make`; or another
            view, whose platform is shared.
        trial_id: of the stored trial.
        tick: with which the episodes begin.
        seats: who takes the seats of which agents, whoever had them; all others are the caller's.
        seat: the only agent that the caller drives, as in `make`.
        environment: what is played, as for `make`, if it cannot be made again from what is stored; also where it is
            served.
        implementation: of an environment that is served elsewhere, if there are several.
        render_mode: with which the environment is made.
        options: where the trials run; its `store` is left out.
        model_registry: the folder of a model registry, for seats of models.
        directory: asked for what `cogment://discover` describes.
        thread: run the platform in a thread of its own; see `PlatformOptions`.
        arguments: with which the environment is made; those that are stored by default.

    Returns:
        An environment of Gymnasium if the trial has one agent, or `seat` names one; otherwise one of PettingZoo:
        parallel, or where agents take turns one for turns.

    Raises:
        NotFoundError: there is no such trial or tick.
        DataLossError: a part of its past is not stored.
        FailedPreconditionError: it is not a trial of an environment that can be made here; `environment` helps.
        InvalidArgumentError: a seat is of no agent, or all agents have seats.
        CogmentError: the store cannot be opened.
    """
    view = getattr(store, "_match", None)
    if options is not None and options.store is not None:
        raise InvalidArgumentError("options: store: expected none, because it is the first argument")
    if view is None:
        others = options or PlatformOptions(model_registry=model_registry, directory=directory, thread=thread)
        options = PlatformOptions(
            store=store,
            model_registry=others.model_registry,
            directory=others.directory,
            address=others.address,
            port=others.port,
            config=others.config,
            thread=others.thread,
        )
    return _branch(
        trial_id,
        tick=tick,
        seats=seats,
        seat=seat,
        target=environment,
        implementation=implementation,
        render_mode=render_mode,
        options=options,
        platform=None if view is None else store,
        **arguments,
    )


def _branch(
    trial_id: str,
    *,
    tick: int,
    seats: Mapping[str, Seat] | None,
    seat: str,
    target: Any,
    implementation: str,
    render_mode: str | None,
    options: PlatformOptions | None = None,
    platform: Any = None,
    **arguments: Any,
) -> Any:
    taken = dict(seats or {})
    remote = is_address(target) or any(isinstance(each, Seat) and is_remote(each) for each in taken.values())
    shared = platform_for(f"branch of {trial_id}", platform, options, remote=remote, seats=tuple(taken.values()))
    try:
        params, past = shared.read_past(trial_id, tick)
        config = _config_of(trial_id, params)
        point = BranchPoint(
            past,
            config.seed if config.HasField("seed") else None,
            _fields(config, "options") or None,
        )
        agents = [actor.name for actor in params.actors]
        found = _environment(trial_id, config, target, agents, taken, implementation, render_mode, arguments)
        view: TrialEnv | TrialParallelEnv | TrialAECEnv
        if seat or len(agents) == 1:
            match, view = _gymnasium(found, taken, seat, shared, point, render_mode, arguments)
        else:
            match = Match(found, seats=taken, platform=shared, arguments=arguments, branch=point)
            view = _pettingzoo(match, past, render_mode)
    finally:
        shared.release()  # the view holds it
    settings = {"tick": tick, "seat": seat, "target": target, "implementation": implementation}
    view.recipe = Recipe(match, _branch, trial_id, seats, {**settings, "render_mode": render_mode}, arguments)
    return view


def _gymnasium(
    environment: Environment | RemoteEnvironment,
    seats: Mapping[str, Seat],
    seat: str,
    platform: Any,
    point: BranchPoint,
    render_mode: str | None,
    arguments: Mapping[str, Any],
) -> tuple[Match, TrialEnv]:
    from trio_cogment.rl.views.gymnasium import TrialEnv, seated

    match = seated(environment, seats, seat, platform=platform, options=None, arguments=arguments, branch=point)
    return match, TrialEnv(match, render_mode=render_mode)


def _pettingzoo(match: Match, past: Past, render_mode: str | None) -> TrialParallelEnv | TrialAECEnv:
    told = [Observation.FromString(content) for content in past.observations[-1]]
    if all(each.active or not each.alive for each in told):
        from trio_cogment.rl.views.parallel import TrialParallelEnv

        return TrialParallelEnv(match, render_mode=render_mode)
    from trio_cogment.rl.views.aec import TrialAECEnv

    return TrialAECEnv(match, render_mode=render_mode)


def _config_of(trial_id: str, params: TrialParams) -> EnvironmentConfig:
    try:
        if any(actor.actor_class != PLAYER for actor in params.actors):
            raise DecodeError
        return EnvironmentConfig.FromString(params.environment.config.content)
    except DecodeError:
        raise FailedPreconditionError(
            f"trial {trial_id!r}: expected one of an environment of the field (Gymnasium, PettingZoo and others); "
            "others are branched by Controller.start_branch"
        ) from None


def _environment(
    trial_id: str,
    config: EnvironmentConfig,
    target: Any,
    agents: list[str],
    seats: Mapping[str, Seat],
    implementation: str,
    render_mode: str | None,
    arguments: dict[str, Any],
) -> Environment | RemoteEnvironment:
    """Return the environment of the stored trial, made again."""
    from trio_cogment.rl.views.gymnasium import find_environment

    known = target is not None
    if not known:
        arguments = {**_fields(config, "arguments"), **arguments}
        target = _target(trial_id, config, arguments)
    try:
        return find_environment(
            target,
            seats=seats,
            agents=agents,
            implementation=implementation,
            render_mode=render_mode,
            arguments=arguments,
        )
    except NotFoundError as error:
        if known:
            raise
        raise FailedPreconditionError(f"trial {trial_id!r}: {error}; {_PASS}") from error


def _target(trial_id: str, config: EnvironmentConfig, arguments: dict[str, Any]) -> Any:
    """Return what makes the environment: by its id and what is registered here, never by code that a trial names."""
    unknown = FailedPreconditionError(
        f"trial {trial_id!r}: environment {config.id!r}: expected one that can be made again from what is stored; "
        f"{_PASS}"
    )
    if not config.id or ":" in config.id or "." in config.id or config.spec == NOT_WRITABLE:
        raise unknown
    if not config.spec:
        return config.id
    spec = recovered_spec(config.spec, config.id, arguments)
    if spec is None:
        raise unknown
    return lambda **more: spec.make(**{"disable_env_checker": True, **more})


def _fields(config: EnvironmentConfig, name: str) -> dict[str, Any]:
    if not config.HasField(name):
        return {}
    try:
        return decode_fields(getattr(config, name), copy=True)
    except SpaceError as error:
        raise InvalidArgumentError(f"environment config: {error.of(name)}") from None
