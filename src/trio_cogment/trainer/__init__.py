"""The trainer: runs of training programs, their workers, telemetry and control.

A run is a program that somebody else has written, with a configuration, in a process that may crash, hang or flood. The
trainer starts it when there is room, takes its steps and episodes, and ends it; what it keeps must be right whatever
the program does. The states of a run are one table (`runs`), and every change of one goes through it, is stored, and is
then shown (`_board`): nobody is told of what a crash could take back.

Telemetry may come faster than anything can store it. It is committed in batches, and a worker may only send what it has
credits for (`credits`); credits are given out in turns, so one run cannot starve the others. A pause is stronger: while
it lasts nothing is accepted, with credit or without.

Who starts workers is behind an interface (`dispatching`). `dispatch` starts processes on this machine and admits as
many as fit; `trials` has runs that consist of trials, which the trainer starts itself, and whose samples are their
telemetry.

The names below are resolved when they are first used: the states of runs and their configurations need no Trio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_cogment.base.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from trio_cogment.trainer._service import trainer_services as trainer_services
    from trio_cogment.trainer._trainer import Trainer as Trainer
    from trio_cogment.trainer.client import TrainerClient as TrainerClient
    from trio_cogment.trainer.config_check import parse_config as parse_config
    from trio_cogment.trainer.dispatch.admission import Capacity as Capacity
    from trio_cogment.trainer.dispatch.command import Surroundings as Surroundings
    from trio_cogment.trainer.dispatch.dispatcher import RunDispatcher as RunDispatcher
    from trio_cogment.trainer.dispatch.workers import Workers as Workers
    from trio_cogment.trainer.dispatching import Dispatcher as Dispatcher
    from trio_cogment.trainer.dispatching import RunControl as RunControl
    from trio_cogment.trainer.dispatching import RunOrder as RunOrder
    from trio_cogment.trainer.dispatching import RunSink as RunSink
    from trio_cogment.trainer.extension import OpenedTrainer as OpenedTrainer
    from trio_cogment.trainer.extension import PlatformTrainer as PlatformTrainer
    from trio_cogment.trainer.extension import this_machine as this_machine
    from trio_cogment.trainer.opening import open_trainer as open_trainer
    from trio_cogment.trainer.trials.where import Where as Where

_HOMES = {
    "Capacity": "dispatch.admission",
    "Dispatcher": "dispatching",
    "OpenedTrainer": "extension",
    "PlatformTrainer": "extension",
    "RunControl": "dispatching",
    "RunDispatcher": "dispatch.dispatcher",
    "RunOrder": "dispatching",
    "RunSink": "dispatching",
    "Surroundings": "dispatch.command",
    "Trainer": "_trainer",
    "TrainerClient": "client",
    "Where": "trials.where",
    "Workers": "dispatch.workers",
    "this_machine": "extension",
    "open_trainer": "opening",
    "parse_config": "config_check",
    "trainer_services": "_service",
}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES)
__all__ = sorted(_HOMES)  # noqa: PLE0605  the names are texts
