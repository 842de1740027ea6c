"""Many trials in a row and at a time: their results as arrays, callbacks, and a league of stored policies.

`run_trials_async` and `open_run` are for Trio programs; `trio_cogment.rl.run_trials` is an ordinary function.
"""

from trio_cogment.rl.runner._opening import open_run, run_trials_async
from trio_cogment.rl.runner._run import Run
from trio_cogment.rl.runner.callbacks import MLflow, TensorBoard, TrialCallback, WeightsAndBiases
from trio_cogment.rl.runner.league import League
from trio_cogment.rl.runner.progress import Progress
from trio_cogment.rl.runner.results import Results, RunFailedError, TrialResult

__all__ = [
    "League",
    "MLflow",
    "Progress",
    "Results",
    "Run",
    "RunFailedError",
    "TensorBoard",
    "TrialCallback",
    "TrialResult",
    "WeightsAndBiases",
    "open_run",
    "run_trials_async",
]
