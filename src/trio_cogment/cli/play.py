"""`trio-cogment play`: people take part in trials, on a page; one command, and a link."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from trio_cogment.base.endpoints import CLIENT, DISCOVER
from trio_cogment.base.errors import CogmentError, needing
from trio_cogment.base.records import record
from trio_cogment.base.services import ACTOR_CLASS, IMPLEMENTATION, ServiceKind
from trio_cogment.cli.configuration import setting_options
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.experiment.files import data_option, is_experiment
from trio_cogment.cli.options import FilePath
from trio_cogment.cli.rl.targets import environment_options, failures, target_of
from trio_cogment.cli.services.figures import add_platform
from trio_cogment.cli.services.kept import where_trials_are
from trio_cogment.cli.services.model_registry import archive_folder, models_option
from trio_cogment.cli.services.pages import opened_pages
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import THIS_MACHINE, ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running
from trio_cogment.cli.services.trial_datastore import (
    PLAY_FILE,
    StorageSettings,
    opened_storage,
    storage_options,
    storage_settings,
)
from trio_cogment.cli.services.types_option import load_types, types_option
from trio_cogment.cli.services.web_flags import web_options, web_settings

if TYPE_CHECKING:
    from trio_cogment.api.common_pb2 import TrialParams
    from trio_cogment.play.games import Game
    from trio_cogment.sdk import Participants
    from trio_cogment.sdk.spec import Spec
    from trio_cogment.seats.presence import Outcome
    from trio_cogment.web import PageAccess
    from trio_cogment.web.routing import AnyRoute

_COMMAND = "play"
_DEFAULT_PORT = 9000
_BOT = "bot"
_GIVE_UP_SECONDS = 5.0
#: What says nothing beside --params -> what says it then.
_OF_ENVIRONMENTS = {
    "argument": "with --params, the configuration of the environment is in the file (environment.config)",
    "hosting": "with --params, the module makes the environment",
    "seed": "with --params, the configuration of the environment is in the file (environment.config)",
    "people": "with --params, people are the actors of the file whose endpoint is cogment://client",
    "tick_hz": "with --params, it is in the file (tick_hz of the environment)",
    "observe_every": "with --params, it is in the file (observe_every of an actor)",
    "hold_action": "with --params, it is in the file (hold_action of an actor)",
    "default_action": "with --params, default actions are in the file (default_action of an actor)",
}


@record(kw_only=True)
class PlaySettings(ServerSettings):
    """The settings of `play`; without a storage its trials are not stored."""

    storage: StorageSettings | None


async def _nothing() -> None:
    pass


@record()
class Prepared:
    """What is played.

    Attributes:
        game: its trials, and how people wait for them.
        participants: who takes part besides people.
        types: of the payloads, for the dashboard.
        close: called in the end.
    """

    game: Game
    participants: Participants
    types: Spec
    close: Callable[[], Any] = field(default=_nothing)


def _seconds(_ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not value >= 0:
        raise click.BadParameter("expected seconds", param=param)
    return value or math.inf


@click.command("play")
@click.argument("target", metavar="ENVIRONMENT|MODULE|EXPERIMENT")
@environment_options
@click.option("--person", "people", multiple=True, metavar="AGENT", help="An agent that a person plays; repeatable.")
@click.option(
    "--bot",
    default=None,
    metavar="random|MODULE:FUNCTION|NAME",
    help="Who plays the other agents, and stands in for people who are away: random actions (the default), or a "
    "function of the observation. With --params, an implementation of the module; the default is none.",
)
@click.option(
    "--params",
    type=FilePath(path_type=Path),
    help="YAML file with the parameters of trials (trial_params), for a MODULE of participants. People are the actors "
    "whose endpoint is cogment://client.",
)
@types_option("--spec", variable="TRIO_COGMENT_PLAY_SPEC", text="Types of the payloads, with --params")
@click.option(
    "--absent",
    type=click.Choice(["default", "bot", "loss"]),
    default=None,
    help="What happens if a person stays away: the default action is taken, a bot plays, or the seat is lost, which "
    "ends a trial that needs the actor. The default is bot if there is one (see --bot), else default if all people's "
    "actors have a default action, else loss.",
)
@click.option(
    "--default", "default_action", metavar="JSON", help="The default action. With --params, it is in the file."
)
@click.option(
    "--tick_hz",
    type=click.FloatRange(min=0, max=1000),
    default=0.0,
    show_default=True,
    help="Ticks a second, by the clock: the game does not wait for people, and takes the default action of one who has "
    "not acted in time. 0: it waits. With --params, it is in the file.",
)
@click.option(
    "--observe_every",
    type=click.IntRange(min=0, max=1_000_000),
    default=0,
    show_default=True,
    help="People are shown every n-th tick, and act once for all ticks up to the next one. 0: every tick.",
)
@click.option(
    "--hold_action",
    is_flag=True,
    help="With --tick_hz: what a person did last is done again until the next action, not the default action.",
)
@click.option(
    "--grace",
    type=float,
    default=30.0,
    show_default=True,
    callback=_seconds,
    help="Seconds within which a person who has left can come back. 0: no limit.",
)
@click.option(
    "--action_seconds",
    type=float,
    default=0.0,
    show_default=True,
    callback=_seconds,
    help="Seconds that a person has for an action; then it is as if the person were away. 0: no limit.",
)
@click.option(
    "--wait",
    type=float,
    default=300.0,
    show_default=True,
    callback=_seconds,
    help="Seconds to wait until enough people have come. 0: no limit.",
)
@click.option(
    "--shortage",
    type=click.Choice(["bots", "fewer", "give_up"]),
    default="give_up",
    show_default=True,
    help="What happens if too few people have come by then: bots play, fewer play, or nobody does.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**63 - 1),
    default=None,
    help="Seed of the environment and of random bots, in each trial. With --params, that of the file.",
)
@click.option("--title", default="", help="Title of the page.")
@click.option("--text", default="", help="What people should know before they begin.")
@click.option("--labels", default="", metavar="NAMES", help="Names of the actions, separated by commas.")
@click.option(
    "--renderer", type=FilePath(path_type=Path), help="HTML file of your own that shows the observations, and acts."
)
@click.option("--demo", is_flag=True, help="Try an experiment: programs take part in it, and no server is started.")
@data_option
@models_option
@setting_options("orchestrator.resume")
@storage_options(PLAY_FILE)
@web_options
@service_options("PLAY", port=_DEFAULT_PORT, host=THIS_MACHINE)
@click.pass_context
def play(ctx: click.Context, /, **options: Any) -> None:
    """Let people take part in trials, in a browser. Starts what is needed, and prints a link for them.

    ENVIRONMENT is an id of Gymnasium (CartPole-v1), an id or name of PettingZoo (classic/rps-v2), or MODULE:FUNCTION, a
    function that makes one. With --params, MODULE has participants, as for `trio-cogment participants`. EXPERIMENT is
    an experiment file (YAML): pages, a waiting room, trials.
    """
    if is_experiment(options["target"]):
        _play_experiment(ctx, options)
        return
    _refuse_without_effect(ctx)
    common = common_settings(ctx)
    settings = PlaySettings(**common, web=web_settings(ctx), storage=storage_settings(ctx))
    if settings.web is None or not settings.web.enabled:
        raise Failure("play: --web=false: expected a page to play on")
    if settings.configuration.orchestrator.resume and settings.auth.secret_file is None:
        raise Failure(
            "play: --resume: expected --auth_secret_file (made by `trio-cogment token init`): with it, the links of "
            "seats outlast the process"
        )
    prepared = functools.cache(functools.partial(_prepared, options))
    stored = "" if settings.storage is None else ", trial_datastore"
    application = Application(
        name=f"{_COMMAND}, orchestrator{stored}",
        ports=[options["port"]],
        check=prepared,
        open=functools.partial(_opened, prepared, settings),
        give_up_seconds=_GIVE_UP_SECONDS,
    )
    run_server(settings, application)


def _play_experiment(ctx: click.Context, options: dict[str, Any]) -> None:
    from trio_cogment.cli.experiment.serving import application_of, refuse_what_the_file_says, run_demo

    refuse_what_the_file_says(ctx)
    storage = storage_settings(ctx)
    settings = PlaySettings(**common_settings(ctx), web=web_settings(ctx), storage=storage)
    if options["demo"]:
        own = ctx.get_parameter_source("storage") is ParameterSource.DEFAULT
        run_demo(options, storage, archive_folder(ctx), settings.configuration, own_storage=own)
        return
    if settings.web is None or not settings.web.enabled:
        raise Failure("play: --web=false: expected a page to take part on")
    run_server(settings, application_of(options, settings, storage, archive_folder(ctx)))


def _refuse_without_effect(ctx: click.Context) -> None:
    """Refuse flags that say something about an environment where there is a module of participants, or the reverse.

    Raises:
        Failure: naming the flag.
    """
    has_params = ctx.params["params"] is not None
    if ctx.params["demo"] or ctx.params["data"]:
        raise Failure(f"play: {'--demo' if ctx.params['demo'] else '--data'}: it is for experiment files (YAML)")
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") not in (ParameterSource.DEFAULT, ParameterSource.ENVIRONMENT)
        if given and has_params and param.name in _OF_ENVIRONMENTS:
            raise Failure(f"play: {param.opts[0]}: {_OF_ENVIRONMENTS[param.name]}")
        if given and not has_params and param.name == "spec":
            raise Failure(f"play: {param.opts[0]}: it is for --params; environments have their own types")


def _prepared(options: dict[str, Any]) -> Prepared:
    """Make what is played; it blocks.

    Raises:
        Failure: something is not as it has to be.
    """
    try:
        if options["params"] is None:
            with needing("gym"):
                return _of_environment(options)
        return _of_module(options)
    except CogmentError as error:
        raise Failure(f"play: {error}") from error


def _of_environment(options: dict[str, Any]) -> Prepared:
    from trio_cogment.environments.making import Recipe
    from trio_cogment.environments.serving import environment
    from trio_cogment.play.environment_games import people_params, with_seed
    from trio_cogment.rl import RL_SPEC
    from trio_cogment.sdk import Participants
    from trio_cogment.seats.base import SeatContext
    from trio_cogment.seats.scripted import policy, random

    name, arguments = options["target"], dict(options["argument"])
    target = target_of(name, _COMMAND)
    with failures(_COMMAND):
        made = Recipe(target, arguments).make()
        made.close()  # it says what is played; each trial makes its own
    served = environment(target, hosting=options["hosting"], arguments=arguments)
    participants = Participants(RL_SPEC)
    participants.register_environment(served, made.name)
    bot = options["bot"] or "random"
    seat = random() if bot == "random" else policy(target_of(bot, _COMMAND))
    participants.register_actor(seat.actor(SeatContext(name, _BOT)), _BOT, ["player"])
    people = options["people"] or made.agents[:1]
    default = _json(options["default_action"])
    params = people_params(
        made,
        people,
        bot=_BOT,
        default=default,
        seed=options["seed"],
        tick_hz=options["tick_hz"],
        observe_every=options["observe_every"],
        hold_action=options["hold_action"],
    )
    types = load_types("--web_spec", options["web_spec"]) or RL_SPEC
    game = replace(_game(options, params, _BOT, name), with_seed=with_seed)
    return Prepared(game, participants, types, served.aclose)


def _of_module(options: dict[str, Any]) -> Prepared:
    from trio_cogment.cli.participants import load
    from trio_cogment.sdk.spec import Spec, load_params

    participants = load(options["target"])
    spec = load_types("--spec", options["spec"]) or participants.spec or Spec()
    # Those who think are not inactive; for those who are away there are flags.
    params = load_params(options["params"], spec=spec, max_inactivity_seconds=0)
    if options["storage"].strip() == "none" and not _has_datalog(participants) and params.datalog.endpoint == DISCOVER:
        params.datalog.endpoint = ""  # the storage is what would be found
    bot = options["bot"] or ""
    if bot:
        _require_bot(participants, params, bot)
    types = load_types("--web_spec", options["web_spec"]) or spec
    return Prepared(_game(options, params, bot, options["target"]), participants, types)


def _require_bot(participants: Participants, params: TrialParams, bot: str) -> None:
    for actor in params.actors:
        wanted = {IMPLEMENTATION: bot, ACTOR_CLASS: actor.actor_class}
        if actor.endpoint.strip() == CLIENT and participants.choose(ServiceKind.ACTOR, wanted) is None:
            have = participants.registered(ServiceKind.ACTOR) or "none"
            raise Failure(
                f"play: --bot: expected an implementation for the actor class {actor.actor_class!r}, got {bot!r}; the "
                f"module has {have}"
            )


def _has_datalog(participants: Participants) -> bool:
    return bool(participants.registered(ServiceKind.DATALOG))


def _game(options: dict[str, Any], params: TrialParams, bot: str, name: str) -> Game:
    from trio_cogment.play.games import Game
    from trio_cogment.play.lobby_machine import LobbyRules, Shortage
    from trio_cogment.seats.presence import SeatRules

    people = sum(actor.endpoint.strip() == CLIENT for actor in params.actors)
    renderer = options["renderer"]
    outcome = _outcome(options, params, bot)
    short = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower())
    return Game(
        name=short.strip("-")[:40] or "game",
        params=params,
        lobby=LobbyRules(
            seats=max(people, 1),
            wait_seconds=options["wait"],
            away_seconds=options["grace"],
            shortage=Shortage(options["shortage"].replace("_", " ")),
        ),
        seat=SeatRules(grace_seconds=options["grace"], action_seconds=options["action_seconds"], outcome=outcome),
        bot=bot,
        title=options["title"] or name,
        text=options["text"],
        labels=[label.strip() for label in options["labels"].split(",") if label.strip()],
        renderer=b"" if renderer is None else renderer.read_bytes(),
    )


def _outcome(options: dict[str, Any], params: TrialParams, bot: str) -> Outcome:
    """Return what happens if a person stays away.

    Raises:
        Failure: the flags want somebody to act who is not there.
    """
    from trio_cogment.seats.presence import Outcome

    without = [
        actor.name
        for actor in params.actors
        if actor.endpoint.strip() == CLIENT and not actor.HasField("default_action")
    ]
    if not bot:
        for flag, value in (("absent", "bot"), ("shortage", "bots")):
            if options[flag] == value:
                raise Failure(f"play: --{flag}={value}: expected --bot, the implementation that plays then")
    if options["absent"] == "default" and without:
        where = "--default" if options["params"] is None else f"default_action in {options['params']}"
        raise Failure(f"play: --absent=default: expected a default action of {without[0]!r}: {where}")
    if options["absent"] is not None:
        return Outcome(options["absent"])
    return Outcome.BOT if bot else Outcome.LOSS if without else Outcome.DEFAULT


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise Failure(f"--default: expected JSON, got {text!r}") from None


@asynccontextmanager
async def _opened(
    prepared: Callable[[], Prepared], settings: PlaySettings, resources: Resources
) -> AsyncIterator[Running]:
    from trio_cogment.base.config import PlatformConfig
    from trio_cogment.platform import open_platform
    from trio_cogment.play.routes import lobby_link, play_routes
    from trio_cogment.play.server import open_play

    game, configuration = prepared().game, settings.configuration
    config = PlatformConfig(
        orchestrator=configuration.orchestrator,
        rpc=configuration.rpc,
        datastore=configuration.datastore,
        client_tls=resources.client_tls,
    )

    def links(access: PageAccess, address: str) -> dict[str, str]:
        return {"play": f"{address}{lobby_link(access, server.config.link_seconds, game.name)}"}

    try:
        async with (
            nullcontext() if settings.storage is None else opened_storage(settings.storage, resources) as store,
            open_platform(prepared().participants, config=config, store=store) as platform,
            open_play(platform, [game], config=configuration.play) as server,
            opened_pages(settings, resources, platform, prepared().types) as dashboard,
        ):
            if platform.resumes:
                platform.resume()
            add_platform(resources.figures, platform)
            if resources.figures is not None:
                resources.figures.add("play", server.figures)

            def routes(access: PageAccess) -> list[AnyRoute]:
                assert dashboard is not None, "the start has been refused without pages"
                return [*play_routes(server, access), *dashboard(access)]

            yield Running(
                services=[platform.services],
                stop=platform.stop,
                routes=routes,
                links=links,
                kept=where_trials_are(
                    settings.storage,
                    platform.orchestrator.datalog_of(game.params),
                    own_datalog=_has_datalog(platform.participants),
                ),
            )
    finally:
        await prepared().close()
