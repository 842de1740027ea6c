"""Experiments as `trio-cogment play` runs them: for people, or with programs in their places."""

from __future__ import annotations

import functools
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
import trio
from click.core import ParameterSource

from trio_cogment.base.errors import InvalidArgumentError, needing
from trio_cogment.cli.demo import until_control_c
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.experiment.export import trials_as_files
from trio_cogment.cli.experiment.files import data_file, read_experiment, trials_file
from trio_cogment.cli.rl.targets import failures, target_of
from trio_cogment.cli.services.figures import add_platform, registry_shown
from trio_cogment.cli.services.kept import shown_place, where_trials_are
from trio_cogment.cli.services.model_registry import opened_registry
from trio_cogment.cli.services.pages import opened_pages
from trio_cogment.cli.services.start import Application, Resources, Running
from trio_cogment.cli.services.trial_datastore import StorageSettings, opened_storage

if TYPE_CHECKING:
    from trio_cogment.base.config import Configuration
    from trio_cogment.cli.services.settings import ServerSettings
    from trio_cogment.experiment.definition import Experiment
    from trio_cogment.experiment.server import ExperimentServer
    from trio_cogment.experiment.trials import ExperimentTrials
    from trio_cogment.platform import Platform
    from trio_cogment.play.server import PlayServer
    from trio_cogment.servers.model_registry import ModelRegistry
    from trio_cogment.web import PageAccess
    from trio_cogment.web.routing import AnyRoute

_COMMAND = "play"
_GIVE_UP_SECONDS = 5.0
#: Each condition gets so many groups of programs.
_DEMO_GROUPS = 2
#: What the experiment file says instead.
_IN_THE_FILE = {
    "argument": "trials: arguments",
    "people": "trials: people",
    "bot": "trials: bots, and dropout: bot",
    "params": "trials",
    "spec": "trials",
    "absent": "dropout: then",
    "default_action": "dropout: default",
    "grace": "dropout: grace_seconds",
    "action_seconds": "trials: action_seconds",
    "tick_hz": "trials: tick_hz",
    "observe_every": "trials: observe_every",
    "hold_action": "trials: hold_action",
    "wait": "waiting: seconds",
    "shortage": "waiting: shortage",
    "resume": "after_restart",
    "seed": "seed",
    "title": "title",
    "text": "trials: text",
    "labels": "trials: labels",
    "renderer": "trials: page",
}


def refuse_what_the_file_says(ctx: click.Context) -> None:
    """Refuse flags that say something that is in an experiment file.

    Raises:
        Failure: naming the flag and the key.
    """
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") not in (ParameterSource.DEFAULT, ParameterSource.ENVIRONMENT)
        if given and param.name in _IN_THE_FILE:
            raise Failure(f"play: {param.opts[0]}: with an experiment it is in the file ({_IN_THE_FILE[param.name]})")


def application_of(
    options: dict[str, Any], settings: ServerSettings, storage: StorageSettings | None, archive: Path | str | None
) -> Application:
    """Return the server of an experiment.

    Args:
        options: the flags of `play`.
        settings: of the server.
        storage: of the trials; None: they are not stored.
        archive: of the stored models that play; None: there is none.
    """
    prepared = functools.cache(functools.partial(_prepared, options))
    stored = "" if storage is None else ", trial_datastore"
    return Application(
        name=f"{_COMMAND}, orchestrator{stored}",
        ports=[options["port"]],
        check=prepared,
        open=functools.partial(_opened, prepared, options["data"], settings, storage, archive),
        give_up_seconds=_GIVE_UP_SECONDS,
    )


def _prepared(options: dict[str, Any]) -> tuple[Experiment, ExperimentTrials]:
    """Read the file, and make its environments once; it blocks.

    Raises:
        Failure: something is not as it has to be.
    """
    experiment = read_experiment(options["target"], _COMMAND)
    with failures(_COMMAND), needing("gym"):
        from trio_cogment.experiment.trials import ExperimentTrials

        # Beside the file, as the other files that it names.
        folder = str(Path(options["target"]).parent)

        def resolve(name: str) -> Any:
            try:
                return target_of(name, _COMMAND, folder)
            except Failure as failure:  # the text of the error that comes of it begins with the place in the file
                raise InvalidArgumentError(failure.message.removeprefix(f"{_COMMAND}: ")) from None

        people = not options["demo"]
        return experiment, ExperimentTrials(experiment, resolve, hosting=options["hosting"], people=people)


@asynccontextmanager
async def _running(
    experiment: Experiment,
    trials: ExperimentTrials,
    data: Path,
    storage: StorageSettings | None,
    archive: Path | str | None,
    configuration: Configuration,
    resources: Resources | None = None,
) -> AsyncIterator[tuple[Platform, PlayServer, ExperimentServer]]:
    from trio_cogment.base.config import PlatformConfig
    from trio_cogment.experiment.server import open_experiment
    from trio_cogment.platform import open_platform
    from trio_cogment.play.server import open_play

    # Trials go on after a restart if they are kept; those of a demonstration are played for nobody.
    resume = storage is not None and storage.is_durable and resources is not None
    config = PlatformConfig(
        orchestrator=replace(configuration.orchestrator, resume=resume),
        rpc=configuration.rpc,
        datastore=configuration.datastore,
        client_tls=None if resources is None else resources.client_tls,
    )
    figures = None if resources is None else resources.figures
    try:
        with _store(data, experiment) as store:
            async with (
                nullcontext() if storage is None else opened_storage(storage, resources) as kept,
                _models(trials, archive, configuration) as models,
                open_platform(trials.participants, config=config, store=kept, model_registry=models) as platform,
                open_play(platform, config=configuration.play) as play,
                open_experiment(experiment, trials, play, platform, store, config=configuration.play) as server,
                registry_shown(figures, models, archive),
            ):
                add_platform(figures, platform)
                if figures is not None:
                    figures.add("play", play.figures)
                yield platform, play, server
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _GIVE_UP_SECONDS):
            await trials.aclose()


@asynccontextmanager
async def _models(
    trials: ExperimentTrials, archive: Path | str | None, configuration: Configuration
) -> AsyncIterator[ModelRegistry | None]:
    """Have the model registry be there if an agent is a stored model; None: there is none."""
    if archive is None or not trials.needs_models:
        yield None
        return
    async with opened_registry(archive, configuration) as registry:
        yield registry


def _store(data: Path, experiment: Experiment) -> Any:
    from trio_cogment.experiment.store import opened_store

    return opened_store(data, experiment.name)


@asynccontextmanager
async def _opened(
    prepared: Any,
    data: Path | None,
    settings: ServerSettings,
    storage: StorageSettings | None,
    archive: Path | str | None,
    resources: Resources,
) -> AsyncIterator[Running]:
    from trio_cogment.experiment.routes import experiment_routes
    from trio_cogment.play.routes import play_routes

    experiment, trials = prepared()
    path = data_file(data, experiment.name)
    async with (
        _running(experiment, trials, path, storage, archive, settings.configuration, resources) as (
            platform,
            play,
            server,
        ),
        opened_pages(
            settings, resources, platform, trials.participants.spec, {"Experiment": "/experiment/"}
        ) as dashboard,
    ):
        params = platform.orchestrator.datalog_of(trials.params)
        if storage is not None and platform.datastore is not None:
            server.export_trials = functools.partial(trials_as_files, platform.datastore_client())

        def routes(access: PageAccess) -> list[AnyRoute]:
            assert dashboard is not None, "the start has been refused without pages"
            return [*play_routes(play, access), *experiment_routes(server), *dashboard(access)]

        def links(_access: PageAccess, address: str) -> dict[str, str]:
            found = {f"play {who}".strip(): f"{address}{link}" for who, link in server.links().items()}
            return {**found, "researchers": f"{address}/experiment/"}

        models = {} if platform.model_registry is None or archive is None else {"models": shown_place(archive)}
        yield Running(
            services=[platform.services],
            stop=platform.stop,
            routes=routes,
            links=links,
            kept={**where_trials_are(storage, params), **models, "experiment": str(path.absolute())},
        )


def run_demo(
    options: dict[str, Any],
    storage: StorageSettings | None,
    archive: Path | str | None,
    configuration: Configuration,
    *,
    own_storage: bool,
) -> None:
    """Have programs take part in an experiment until all are at an end, and say which.

    Args:
        options: see `application_of`, as the next two.
        storage: see there.
        archive: see there.
        configuration: of the server.
        own_storage: the trials are in a file of the demonstration, which begins anew; `storage` has the other settings.

    Raises:
        Failure: the file is wrong, the experiment could not go on, or nobody has come to its end.
    """
    from trio_cogment.experiment.demo import people_of_demo

    experiment, trials = _prepared(options)
    groups = experiment.waiting.groups or _DEMO_GROUPS * len(experiment.conditions)
    people = people_of_demo(experiment, groups)
    # Not the files of the people: programs are in no group of theirs, and their trials are no data.
    path = options["data"] or data_file(None, experiment.name).with_name(f"{experiment.name}.demo.db")
    files = [path]
    if storage is not None and own_storage:
        storage = replace(storage, file=trials_file(path))
        files.append(trials_file(path))
    refused: list[str] = []
    with failures(_COMMAND):
        for file in files:
            if options["data"] is not None and file.exists():
                raise Failure(
                    f"{_COMMAND}: --data: {file} is there already; a demonstration begins with a file of its own"
                )
        if options["data"] is None:
            _delete_demo(path, experiment, files)
        try:
            run = functools.partial(_demo, experiment, trials, path, storage, archive, configuration, people, refused)
            ends = trio.run(until_control_c, run)
        except BaseExceptionGroup as group:  # Control-C at the very beginning
            if group.subgroup(KeyboardInterrupt) is not None:
                raise KeyboardInterrupt from None
            raise
    for end, count in sorted(ends.items()):
        click.echo(f"{end}: {count}")
    for why, count in Counter(refused).items():
        click.echo(f"refused: {why}" + (f" ({count} times)" if count > 1 else ""))
    command = ["trio-cogment", "experiment", "export", options["target"], "--data", str(path), "--output", "tables"]
    click.echo(f"data: {path}\ntables: {shlex.join(command)}")
    if not ends.get("complete"):
        raise Failure(f"{_COMMAND}: --demo: nobody has come to the end 'complete'")


def _delete_demo(path: Path, experiment: Experiment, files: Sequence[Path]) -> None:
    """Delete what programs have left behind: they come anew, and would be at their ends."""
    from trio_cogment.servers.datastore.compacting import check_unused

    if path.exists():
        with _store(path, experiment):
            pass  # it is nobody else's, and nobody has it open
    for file in files:
        if file != path and file.exists():
            check_unused(str(file))
    for file in files:
        for name in (f"{file}-wal", f"{file}-shm", file):
            Path(name).unlink(missing_ok=True)


async def _demo(
    experiment: Experiment,
    trials: ExperimentTrials,
    path: Path,
    storage: StorageSettings | None,
    archive: Path | str | None,
    configuration: Configuration,
    people: int,
    refused: list[str],
) -> dict[str, int]:
    from trio_cogment.experiment.demo import play_demo

    async with _running(experiment, trials, path, storage, archive, configuration) as (_, play, server):
        play.link_of = lambda trial_id, actor, _sources: f"{trial_id} {actor}"
        return await play_demo(server, people, Random(experiment.seed), refused)
