"""`trio-cogment client trial`: starts, lists, finds, watches, describes and terminates trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.client.common import ClientSettings, client_options, client_settings, run_client, show
from trio_cogment.cli.client.reaching import places_option, reached
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, Group, applied, as_endpoint, nearest, properties_option
from trio_cogment.cli.terminal import can_draw
from trio_cogment.cli.text import fields_of, printable
from trio_cogment.cli.tls import load_tls
from trio_cogment.cli.trials_view import end_text, line_of, row_of, table

if TYPE_CHECKING:
    from trio_cogment.api.common_pb2 import TrialParams
    from trio_cogment.api.orchestrator_pb2 import TrialInfo, TrialListEntry
    from trio_cogment.base.endpoints import GrpcEndpoint
    from trio_cogment.base.outcome import TrialOutcome
    from trio_cogment.rpc import Channel
    from trio_cogment.sdk import Controller, FoundTrial

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

#: So often `start --wait` looks whether the data log holds the trial's samples up.
_LOOK_SECONDS = 2.0
#: What `start` may wait for.
_RUNNING, _ENDED = "running", "ended"
_STATES = ("INITIALIZING", "PENDING", "RUNNING", "TERMINATING", "ENDED")


def _trial_options(command: _Decorated) -> _Decorated:
    endpoint = places_option(
        "--endpoint",
        ServiceKind.LIFECYCLE,
        variable="COGMENT_ORCHESTRATOR_ENDPOINT",
        text="Endpoint of the orchestrator.",
    )
    return endpoint(client_options(command))


def _state_option(command: _Decorated) -> _Decorated:
    option = click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice(_STATES, case_sensitive=False),
        help="Only trials in this state; repeatable. By default all.",
    )
    return option(command)


def _channel(
    ctx: click.Context, settings: ClientSettings, *, bounded: bool = True
) -> AbstractAsyncContextManager[Channel]:
    return reached(settings, ServiceKind.LIFECYCLE, nearest(ctx, "endpoint"), bounded=bounded, flag="--endpoint")


@click.group(cls=Group)
@_trial_options
def trial(**_options: Any) -> None:
    """Start, watch and end the trials of an orchestrator."""


def _start_options(params_text: str) -> Callable[[_Decorated], _Decorated]:
    options = (
        click.option("--params", type=FilePath(path_type=Path), metavar="FILE", help=params_text),
        click.option(
            "--trial_id", default="", metavar="ID", help="Id of the trial. By default the orchestrator makes one."
        ),
        click.option("--user_id", default="trio-cogment", show_default=True, metavar="ID", help="User of the trial."),
        click.option(
            "--wait",
            is_flag=False,
            flag_value=_ENDED,
            type=click.Choice([_RUNNING, _ENDED]),
            help="Wait until it has ended and is stored or, with --wait=running, until everybody is there and it runs. "
            "Exit code 1, and the reason, if it has failed.",
        ),
    )
    return lambda command: applied(options, command)


@trial.command()
@_start_options(
    "YAML file with the parameters (trial_params). By default the orchestrator's own, after its pre-trial hooks."
)
@_trial_options
@click.pass_context
def start(
    ctx: click.Context, /, params: Path | None, trial_id: str, user_id: str, wait: str | None, **_options: Any
) -> None:
    """Start a trial, and print its id.

    Without --wait it does not wait for the participants: whether they can be reached turns out later (`info`).
    """
    _start(ctx, params, trial_id, user_id, wait)


@trial.command()
@click.argument("branch_of", metavar="ID")
@click.option(
    "--tick", required=True, type=click.IntRange(min=0), metavar="NUMBER", help="The tick with which it begins."
)
@_start_options("YAML file with its parameters (trial_params). By default those of the stored trial.")
@_trial_options
@click.pass_context
def branch(
    ctx: click.Context,
    /,
    branch_of: str,
    tick: int,
    params: Path | None,
    trial_id: str,
    user_id: str,
    wait: str | None,
    **_options: Any,
) -> None:
    """Start a trial that goes on with a stored one, and print its id.

    It begins at a tick of that trial, which is named by its id, with the participants of its parameters. Its properties
    branch.trial and branch.tick say so.
    """
    _start(ctx, params, trial_id, user_id, wait, branch_of=(branch_of, tick))


def _start(
    ctx: click.Context,
    params: Path | None,
    trial_id: str,
    user_id: str,
    wait: str | None,
    *,
    branch_of: tuple[str, int] | None = None,
) -> None:
    settings, given = client_settings(ctx), _params(params)

    async def begin() -> str:
        from trio_cogment.base.errors import RpcError, StatusCode
        from trio_cogment.sdk import Controller

        async with _channel(ctx, settings) as channel:
            controller = Controller(channel, user_id=user_id)
            if branch_of is not None:
                return checked(await controller.start_branch(*branch_of, params=given, trial_id=trial_id))
            try:
                started = await controller.start_trial(given, trial_id=trial_id)
            except RpcError as error:
                if given is not None or error.code is not StatusCode.INVALID_ARGUMENT:
                    raise
                hint = "these are the orchestrator's default parameters; --params names others"
                raise Failure(f"{error}; {hint}") from None
        return checked(started)

    def checked(started: str) -> str:
        if not started:
            raise Failure(f"--trial_id: {printable(trial_id)}: there is such a trial already")
        return started

    async def waited(started: str) -> TrialOutcome | None:
        import trio

        from trio_cogment.api.common_pb2 import TrialState
        from trio_cogment.sdk import Controller

        async with _channel(ctx, settings, bounded=False) as channel:
            controller = Controller(channel)
            if wait == _RUNNING:
                info = await controller.wait_trial_state(started, TrialState.RUNNING)
                if info is not None and info.state == TrialState.RUNNING:
                    return None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_say_what_waits, controller, started)
                outcome = await controller.wait_trial(started, check=False)
                nursery.cancel_scope.cancel()
            return outcome

    started = run_client(begin)
    if wait is None:
        show(settings, started, {"trialId": started})
        return
    if settings.output == "text":
        click.echo(started)  # at once: somebody may want to end it
    from trio_cogment.base.outcome import ticks_text

    outcome = run_client(waited, started)
    if outcome is None:
        show(settings, "running", {"trialId": started, "state": "RUNNING"})
        return
    data = {
        "trialId": started,
        "ticks": outcome.ticks,
        "cause": outcome.cause.label,
        "failed": outcome.failed,
        "reason": outcome.reason,
        "samplesLost": outcome.samples_lost,
    }
    show(settings, printable(f"ended after {ticks_text(outcome.ticks)}: {outcome.cause.label}"), data)
    if outcome.failed or not outcome.stored:
        raise Failure(printable(str(outcome)))


async def _say_what_waits(controller: Controller, trial_id: str) -> None:
    """Say on stderr when the samples of a trial wait for its data log, also when it has ended, and when no more."""
    import trio

    said = False
    while True:
        await trio.sleep(_LOOK_SECONDS)
        try:
            infos = await controller.trial_infos([trial_id])
        except CogmentError:
            return  # whoever waits for the trial is told
        trouble = infos[0].datalog_trouble if infos else ""
        if bool(trouble) is not said:
            said = bool(trouble)
            text = f"its samples wait for the data log: {trouble}" if said else "the data log takes its samples again"
            click.echo(f"trio-cogment: trial {printable(f'{trial_id}: {text}')}", err=True)


def _params(file: Path | None) -> TrialParams | None:
    if file is None:
        return None
    from trio_cogment.cli.services.types_option import NAMED
    from trio_cogment.sdk.spec import load_params

    try:
        return load_params(file, named=NAMED)
    except CogmentError as error:
        raise Failure(f"--params: {error}") from error


@trial.command("list")
@_state_option
@properties_option("Only trials")
@_trial_options
@click.pass_context
def list_trials(ctx: click.Context, /, states: Sequence[str], properties: dict[str, str], **_options: Any) -> None:
    """List running and ended trials.

    They are in the order of their starts. Ended ones are forgotten after a while.
    """
    settings = client_settings(ctx)
    wanted = _numbers(states)

    def is_wanted(info: TrialInfo) -> bool:
        return (not wanted or info.state in wanted) and properties.items() <= dict(info.properties).items()

    infos = list(filter(is_wanted, _asked(ctx, settings, ())))
    show(settings, table(infos), {"trials": list(map(fields_of, infos))})


@trial.command()
@click.argument("trial_ids", nargs=-1, required=True, metavar="TRIAL_ID...")
@_trial_options
@click.pass_context
def info(ctx: click.Context, /, trial_ids: tuple[str, ...], **_options: Any) -> None:
    """Describe trials.

    Prints state, ticks, actors and properties, and how they ended; exit code 1 if one is not known.
    """
    settings = client_settings(ctx)
    infos = _asked(ctx, settings, trial_ids)
    if infos or settings.output == "json":
        show(settings, "\n\n".join(map(_described, infos)), {"trials": list(map(fields_of, infos))})
    _refuse_unknown(trial_ids, infos)


@trial.command()
@click.argument("trial_id", metavar="TRIAL_ID")
@click.option(
    "--directory_endpoint",
    callback=as_endpoint,
    default=None,
    metavar="ENDPOINT",
    envvar="COGMENT_DIRECTORY_ENDPOINT",
    show_envvar=True,
    help="Directory whose orchestrators are asked. By default only the server at --endpoint is.",
)
@_trial_options
@click.pass_context
def find(ctx: click.Context, /, trial_id: str, directory_endpoint: GrpcEndpoint | None, **_options: Any) -> None:
    """Find the orchestrator that runs a trial.

    Asks the datastore, or else all orchestrators of the directory at once. Exit code 1 if nobody knows the trial.
    """
    settings = client_settings(ctx)

    async def search() -> FoundTrial:
        from trio_cogment.sdk import Controller, connect

        if directory_endpoint is None:
            async with _channel(ctx, settings) as channel:
                return await Controller(channel).find_trial(trial_id)
        tls = None if settings.tls is None else load_tls(settings.tls).client
        place = str(directory_endpoint)
        async with connect(directory=place, tls=tls, access_token=settings.token) as client:
            return await client.find_trial(trial_id)

    found = run_client(search)
    data = {"trialId": trial_id, "endpoint": found.endpoint, "state": _name_of(found.state), "stored": found.is_stored}
    # A datastore knows the state from the samples, of which there may be none yet.
    state = _name_of(found.state) if found.state else "no sample yet"
    parts = (trial_id, found.endpoint or "-", state)
    show(settings, printable("  ".join(parts)), data)


def _name_of(state: int) -> str:
    from trio_cogment.api.common_pb2 import TrialState

    return TrialState.Name(cast("TrialState", state))


@trial.command()
@click.argument("trial_ids", nargs=-1, required=True, metavar="TRIAL_ID...")
@click.option("--hard", is_flag=True, help="End them at once. By default their participants finish the tick.")
@_trial_options
@click.pass_context
def terminate(ctx: click.Context, /, trial_ids: tuple[str, ...], hard: bool, **_options: Any) -> None:
    """End trials.

    Exit code 1 if the orchestrator does not know one of them.
    """
    from trio_cogment.api.common_pb2 import TrialState

    settings, asked = client_settings(ctx), list(dict.fromkeys(trial_ids))

    async def ask() -> Sequence[TrialInfo]:
        from trio_cogment.sdk import Controller

        async with _channel(ctx, settings) as channel:
            controller = Controller(channel)
            found = await controller.trial_infos(asked)
            if going := [one.trial_id for one in found if one.state != TrialState.ENDED]:
                await controller.terminate_trial(going, hard=hard)
            return found

    infos = run_client(ask)
    ended = [one.trial_id for one in infos if one.state == TrialState.ENDED]
    going = [one.trial_id for one in infos if one.state != TrialState.ENDED]
    parts = (("asked to end", going), ("had ended", ended))
    text = "\n".join(printable(f"{what}: {', '.join(names)}") for what, names in parts if names)
    if infos or settings.output == "json":
        show(settings, text, {"trialIds": going, "hadEnded": ended})
    _refuse_unknown(asked, infos)


@trial.command()
@click.argument("trial_ids", nargs=-1, metavar="[TRIAL_ID...]")
@_state_option
@_trial_options
@click.pass_context
def watch(ctx: click.Context, /, trial_ids: tuple[str, ...], states: Sequence[str], **_options: Any) -> None:
    """Watch trials: all until Control-C, or some until they ended.

    Every change of a state is a line. On a terminal all trials are a table that is redrawn, unless trials or states
    are named.
    """
    settings = client_settings(ctx)
    draws = can_draw() and settings.output == "text" and not (trial_ids or states)

    async def follow() -> None:
        from trio_cogment.sdk import Controller

        async with _channel(ctx, settings, bounded=False) as channel:
            controller = Controller(channel)
            if draws:
                await _draw(controller)
            else:
                await _print_changes(controller, settings, list(dict.fromkeys(trial_ids)), _numbers(states))

    run_client(follow)


async def _draw(controller: Controller) -> None:
    import trio

    from trio_cogment.cli.trials_screen import TrialsScreen

    screen = TrialsScreen(controller)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(screen.draw_for_ever)
            await screen.follow()
            nursery.cancel_scope.cancel()
    finally:
        await screen.leave()


async def _print_changes(
    controller: Controller, settings: ClientSettings, trial_ids: Sequence[str], states: Iterable[int]
) -> None:
    from trio_cogment.api.common_pb2 import TrialState

    waiting, shown = set(trial_ids), set(states)
    async with controller.watch_trials(full_info=True) as changes:
        if trial_ids:
            found = await controller.trial_infos(trial_ids)
            _refuse_unknown(trial_ids, found)
        entry: TrialListEntry
        async for entry in changes:
            one = entry.info
            if trial_ids and one.trial_id not in trial_ids:
                continue
            if not shown or one.state in shown:
                show(settings, line_of(one), fields_of(one))
            if one.state == TrialState.ENDED:
                waiting.discard(one.trial_id)
            if trial_ids and not waiting:
                return


def _asked(ctx: click.Context, settings: ClientSettings, trial_ids: Iterable[str]) -> Sequence[TrialInfo]:
    async def ask() -> Sequence[TrialInfo]:
        from trio_cogment.sdk import Controller

        async with _channel(ctx, settings) as channel:
            return await Controller(channel).trial_infos(trial_ids, actors=True)

    return run_client(ask)


def _refuse_unknown(trial_ids: Iterable[str], infos: Iterable[TrialInfo]) -> None:
    known = {one.trial_id for one in infos}
    if missing := [trial_id for trial_id in dict.fromkeys(trial_ids) if trial_id not in known]:
        raise Failure(f"no such trial: {', '.join(missing)}; ended ones are forgotten; `list` shows those known")


def _numbers(states: Iterable[str]) -> set[int]:
    from trio_cogment.api.common_pb2 import TrialState

    return {TrialState.Value(name) for name in states}


def _rate_text(info: TrialInfo) -> str:
    """Return how a trial keeps its rate; empty for one without."""
    rate = info.tick_rate
    if not rate.hz:
        return ""
    return (
        f"{rate.hz:g} a second; missed: {rate.missed_ticks}; late actions: {rate.late_actions}; "
        f"made up: {rate.absent_actions}"
    )


def _described(info: TrialInfo) -> str:
    from trio_cogment.base.outcome import TrialOutcome, lost_text

    outcome = TrialOutcome.of(info.trial_id, info.end)
    name, state, tick, rate, time, _ = row_of(info)  # its last column has troubles as well, which have lines here
    properties = ", ".join(f"{key}={info.properties[key]}" for key in sorted(info.properties))
    entries = {
        "trial": name,
        "state": state,
        "environment": info.env_name,
        "tick": f"{tick} ({rate} a second)",
        "time": time,
        "tick rate": _rate_text(info),
        "actors": ", ".join(f"{actor.name} ({actor.actor_class})" for actor in info.actors_in_trial),
        "waiting for": "the data log" if info.waits_for_datalog else ", ".join(info.awaited),
        "properties": properties,
        "end": end_text(info.trial_id, info.end) if info.HasField("end") else "",
        "reason": outcome.reason,
        "data log": info.datalog_trouble,
        "samples": "" if not info.samples_lost else lost_text(info.samples_lost),
        "lost": "; ".join(f"{loss.participant}: {loss.reason or loss.cause.label}" for loss in outcome.losses),
    }
    return "\n".join(printable(f"{label:11}  {text}") for label, text in entries.items() if text)
