"""Reinforcement learning: trials as environments of the field's libraries, their environments as those of trials.

A trial can be looked at from both ends. `trio_cogment.environments` makes an environment of Gymnasium, PettingZoo or
dm_env the environment of a trial. `views` does the opposite: a training loop calls `reset` and `step`, and sits in a
trial as one of its actors, whoever the others are. Put together, an ordinary training script runs unchanged in a trial
that people and other agents take part in, and that is stored.

`runner` is for those who do not want to step themselves: many trials, at several orchestrators, with results as arrays.
`datasets` makes stored trials the data of offline learning, and plays recorded ones again.

The names below are resolved when they are first used, so that each extra is needed only by what uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_cogment.base.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from trio_cogment.environments.errors import EnvironmentFailedError as EnvironmentFailedError
    from trio_cogment.environments.errors import EnvironmentLostError as EnvironmentLostError
    from trio_cogment.environments.errors import InvalidActionError as InvalidActionError
    from trio_cogment.environments.errors import InvalidEnvironmentError as InvalidEnvironmentError
    from trio_cogment.environments.errors import TakingUpError as TakingUpError
    from trio_cogment.environments.making import make_environment as make_environment
    from trio_cogment.environments.serving import environment as environment
    from trio_cogment.environments.spec import PLAYER as PLAYER
    from trio_cogment.environments.spec import RL_SPEC as RL_SPEC
    from trio_cogment.gateways.openenv.client import openenv_environment as openenv_environment
    from trio_cogment.gateways.openenv.server import OpenEnvServer as OpenEnvServer
    from trio_cogment.gateways.openenv.server import serve_openenv as serve_openenv
    from trio_cogment.play.clients import join_trials as join_trials
    from trio_cogment.play.clients import serve_clients as serve_clients
    from trio_cogment.rl.datasets.checking import DatasetFinding as DatasetFinding
    from trio_cogment.rl.datasets.checking import check_dataset as check_dataset
    from trio_cogment.rl.datasets.exporting import Exported as Exported
    from trio_cogment.rl.datasets.exporting import ExportProgress as ExportProgress
    from trio_cogment.rl.datasets.exporting import export as export
    from trio_cogment.rl.datasets.exporting import export_async as export_async
    from trio_cogment.rl.datasets.exporting import read_steps as read_steps
    from trio_cogment.rl.datasets.exporting import read_steps_async as read_steps_async
    from trio_cogment.rl.datasets.replaying import replay_actor as replay_actor
    from trio_cogment.rl.datasets.replaying import replay_environment as replay_environment
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
    from trio_cogment.rl.views.aec import TrialAECEnv as TrialAECEnv
    from trio_cogment.rl.views.aec import make_aec as make_aec
    from trio_cogment.rl.views.branch import branch as branch
    from trio_cogment.rl.views.gymnasium import TrialEnv as TrialEnv
    from trio_cogment.rl.views.gymnasium import make as make
    from trio_cogment.rl.views.gymnasium import register as register
    from trio_cogment.rl.views.options import PlatformOptions as PlatformOptions
    from trio_cogment.rl.views.options import Rate as Rate
    from trio_cogment.rl.views.parallel import TrialParallelEnv as TrialParallelEnv
    from trio_cogment.rl.views.parallel import make_parallel as make_parallel
    from trio_cogment.rl.views.rounds import EpisodeFailedError as EpisodeFailedError
    from trio_cogment.rl.views.stable_baselines import SB3VecEnv as SB3VecEnv
    from trio_cogment.rl.views.tools import TrialTools as TrialTools
    from trio_cogment.rl.views.tools import environment_factory as environment_factory
    from trio_cogment.rl.views.vector import TrialVectorEnv as TrialVectorEnv
    from trio_cogment.rl.views.vector import make_vec as make_vec
    from trio_cogment.rl.views.verifiers import verifiers_plugin as verifiers_plugin
    from trio_cogment.seats.base import Seat as Seat
    from trio_cogment.seats.base import SeatContext as SeatContext
    from trio_cogment.seats.base import SeatError as SeatError
    from trio_cogment.seats.models import model as model
    from trio_cogment.seats.remote import endpoint as endpoint
    from trio_cogment.seats.remote import human as human
    from trio_cogment.seats.scripted import policy as policy
    from trio_cogment.seats.scripted import random as random
    from trio_cogment.seats.text import text as text

#: The module of each public name, below `trio_cogment.rl`.
_HOMES = {
    "DatasetFinding": "datasets.checking",
    "EnvironmentFailedError": "trio_cogment.environments.errors",
    "EnvironmentLostError": "trio_cogment.environments.errors",
    "EpisodeFailedError": "views.rounds",
    "ExportProgress": "datasets.exporting",
    "Exported": "datasets.exporting",
    "InvalidActionError": "trio_cogment.environments.errors",
    "InvalidEnvironmentError": "trio_cogment.environments.errors",
    "League": "runner",
    "MLflow": "runner",
    "OpenEnvServer": "trio_cogment.gateways.openenv.server",
    "PLAYER": "trio_cogment.environments.spec",
    "PlatformOptions": "views.options",
    "Rate": "views.options",
    "RL_SPEC": "trio_cogment.environments.spec",
    "Results": "runner",
    "RunFailedError": "runner",
    "SB3VecEnv": "views.stable_baselines",
    "Seat": "trio_cogment.seats.base",
    "SeatContext": "trio_cogment.seats.base",
    "SeatError": "trio_cogment.seats.base",
    "TakingUpError": "trio_cogment.environments.errors",
    "TensorBoard": "runner",
    "TrialAECEnv": "views.aec",
    "TrialCallback": "runner",
    "TrialEnv": "views.gymnasium",
    "TrialParallelEnv": "views.parallel",
    "TrialResult": "runner",
    "TrialTools": "views.tools",
    "TrialVectorEnv": "views.vector",
    "WeightsAndBiases": "runner",
    "branch": "views.branch",
    "check_dataset": "datasets.checking",
    "endpoint": "trio_cogment.seats.remote",
    "environment": "trio_cogment.environments.serving",
    "environment_factory": "views.tools",
    "export": "datasets.exporting",
    "export_async": "datasets.exporting",
    "human": "trio_cogment.seats.remote",
    "join_trials": "trio_cogment.play.clients",
    "make": "views.gymnasium",
    "make_aec": "views.aec",
    "make_environment": "trio_cogment.environments.making",
    "make_parallel": "views.parallel",
    "make_vec": "views.vector",
    "model": "trio_cogment.seats.models",
    "open_run": "runner",
    "openenv_environment": "trio_cogment.gateways.openenv.client",
    "policy": "trio_cogment.seats.scripted",
    "random": "trio_cogment.seats.scripted",
    "read_steps": "datasets.exporting",
    "read_steps_async": "datasets.exporting",
    "register": "views.gymnasium",
    "replay_actor": "datasets.replaying",
    "replay_environment": "datasets.replaying",
    "run_trials": "runner.scripts",
    "run_trials_async": "runner",
    "serve_clients": "trio_cogment.play.clients",
    "serve_openenv": "trio_cogment.gateways.openenv.server",
    "text": "trio_cogment.seats.text",
    "verifiers_plugin": "views.verifiers",
}
#: The extra that a name needs, where that is not `arrays`.
_EXTRAS = {
    **dict.fromkeys(("make", "make_vec", "register", "TrialEnv", "TrialVectorEnv", "SB3VecEnv"), "gym"),
    **dict.fromkeys(("environment_factory", "TrialTools"), "gym"),
    **dict.fromkeys(("make_parallel", "make_aec", "TrialParallelEnv", "TrialAECEnv"), "pettingzoo"),
    **dict.fromkeys(
        ("export", "export_async", "read_steps", "read_steps_async", "replay_actor", "replay_environment"), "export"
    ),
    **dict.fromkeys(("check_dataset", "DatasetFinding"), "minari"),
    **dict.fromkeys(("openenv_environment", "serve_openenv", "OpenEnvServer"), "openenv"),
}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES, extra_of=lambda name: _EXTRAS.get(name, "arrays"))
__all__ = sorted(_HOMES)  # noqa: PLE0605  the names are texts
