"""The trainer: runs of training programs, their workers, telemetry and control.

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
