"""Reinforcement learning: trials as environments of the field's libraries, their environments as those of trials.

The names below are resolved when they are first used, so that each extra is needed only by what uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_cogment._lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from trio_cogment.rl.datasets.exporting import Exported as Exported
    from trio_cogment.rl.datasets.exporting import ExportProgress as ExportProgress
    from trio_cogment.rl.datasets.exporting import export as export
    from trio_cogment.rl.datasets.exporting import export_async as export_async
    from trio_cogment.rl.datasets.replaying import replay_actor as replay_actor
    from trio_cogment.rl.datasets.replaying import replay_environment as replay_environment
    from trio_cogment.rl.environments.errors import EnvironmentFailedError as EnvironmentFailedError
    from trio_cogment.rl.environments.errors import EnvironmentLostError as EnvironmentLostError
    from trio_cogment.rl.environments.errors import InvalidActionError as InvalidActionError
    from trio_cogment.rl.environments.errors import InvalidEnvironmentError as InvalidEnvironmentError
    from trio_cogment.rl.environments.making import make_environment as make_environment
    from trio_cogment.rl.environments.serving import environment as environment
    from trio_cogment.rl.openenv.client import openenv_environment as openenv_environment
    from trio_cogment.rl.openenv.server import OpenEnvServer as OpenEnvServer
    from trio_cogment.rl.openenv.server import serve_openenv as serve_openenv
    from trio_cogment.rl.runner import League as League
    from trio_cogment.rl.runner import MLflow as MLflow
    from trio_cogment.rl.runner import Results as Results
    from trio_cogment.rl.runner import RunFailedError as RunFailedError
    from trio_cogment.rl.runner import TensorBoard as TensorBoard
    from trio_cogment.rl.runner import TrialCallback as TrialCallback
    from trio_cogment.rl.runner import TrialResult as TrialResult
    from trio_cogment.rl.runner import WeightsAndBiases as WeightsAndBiases
    from trio_cogment.rl.runner import open_run as open_run
    from trio_cogment.rl.runner import run_trials_async as run_trials_async
    from trio_cogment.rl.runner.scripts import run_trials as run_trials
    from trio_cogment.rl.seats.base import Seat as Seat
    from trio_cogment.rl.seats.base import SeatContext as SeatContext
    from trio_cogment.rl.seats.clients import join_trials as join_trials
    from trio_cogment.rl.seats.clients import serve_clients as serve_clients
    from trio_cogment.rl.seats.errors import SeatError as SeatError
    from trio_cogment.rl.seats.models import model as model
    from trio_cogment.rl.seats.remote import endpoint as endpoint
    from trio_cogment.rl.seats.remote import human as human
    from trio_cogment.rl.seats.scripted import policy as policy
    from trio_cogment.rl.seats.scripted import random as random
    from trio_cogment.rl.seats.text import text as text
    from trio_cogment.rl.spec import PLAYER as PLAYER
    from trio_cogment.rl.spec import RL_SPEC as RL_SPEC
    from trio_cogment.rl.views.aec import TrialAECEnv as TrialAECEnv
    from trio_cogment.rl.views.aec import make_aec as make_aec
    from trio_cogment.rl.views.gymnasium import TrialEnv as TrialEnv
    from trio_cogment.rl.views.gymnasium import make as make
    from trio_cogment.rl.views.gymnasium import register as register
    from trio_cogment.rl.views.options import PlatformOptions as PlatformOptions
    from trio_cogment.rl.views.parallel import TrialParallelEnv as TrialParallelEnv
    from trio_cogment.rl.views.parallel import make_parallel as make_parallel
    from trio_cogment.rl.views.rounds import EpisodeFailedError as EpisodeFailedError
    from trio_cogment.rl.views.stable_baselines import SB3VecEnv as SB3VecEnv
    from trio_cogment.rl.views.vector import TrialVectorEnv as TrialVectorEnv
    from trio_cogment.rl.views.vector import make_vec as make_vec

#: The module of each public name, below `trio_cogment.rl`.
_HOMES = {
    "EnvironmentFailedError": "environments.errors",
    "EnvironmentLostError": "environments.errors",
    "EpisodeFailedError": "views.rounds",
    "ExportProgress": "datasets.exporting",
    "Exported": "datasets.exporting",
    "InvalidActionError": "environments.errors",
    "InvalidEnvironmentError": "environments.errors",
    "League": "runner",
    "MLflow": "runner",
    "OpenEnvServer": "openenv.server",
    "PLAYER": "spec",
    "PlatformOptions": "views.options",
    "RL_SPEC": "spec",
    "Results": "runner",
    "RunFailedError": "runner",
    "SB3VecEnv": "views.stable_baselines",
    "Seat": "seats.base",
    "SeatContext": "seats.base",
    "SeatError": "seats.errors",
    "TensorBoard": "runner",
    "TrialAECEnv": "views.aec",
    "TrialCallback": "runner",
    "TrialEnv": "views.gymnasium",
    "TrialParallelEnv": "views.parallel",
    "TrialResult": "runner",
    "TrialVectorEnv": "views.vector",
    "WeightsAndBiases": "runner",
    "endpoint": "seats.remote",
    "environment": "environments.serving",
    "export": "datasets.exporting",
    "export_async": "datasets.exporting",
    "human": "seats.remote",
    "join_trials": "seats.clients",
    "make": "views.gymnasium",
    "make_aec": "views.aec",
    "make_environment": "environments.making",
    "make_parallel": "views.parallel",
    "make_vec": "views.vector",
    "model": "seats.models",
    "open_run": "runner",
    "openenv_environment": "openenv.client",
    "policy": "seats.scripted",
    "random": "seats.scripted",
    "register": "views.gymnasium",
    "replay_actor": "datasets.replaying",
    "replay_environment": "datasets.replaying",
    "run_trials": "runner.scripts",
    "run_trials_async": "runner",
    "serve_clients": "seats.clients",
    "serve_openenv": "openenv.server",
    "text": "seats.text",
}
#: The extra that a name needs, where that is not `arrays`.
_EXTRAS = {
    **dict.fromkeys(("make", "make_vec", "register", "TrialEnv", "TrialVectorEnv", "SB3VecEnv"), "gym"),
    **dict.fromkeys(("make_parallel", "make_aec", "TrialParallelEnv", "TrialAECEnv"), "pettingzoo"),
    **dict.fromkeys(("export", "export_async", "replay_actor", "replay_environment"), "export"),
    **dict.fromkeys(("openenv_environment", "serve_openenv", "OpenEnvServer"), "openenv"),
}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES, extra_of=lambda name: _EXTRAS.get(name, "arrays"))
__all__ = sorted(_HOMES)  # noqa: PLE0605  the names are texts
