"""Many trials in a row and at a time: their results as arrays, callbacks, and a league of stored policies.

`run_trials_async` and `open_run` are for Trio programs; `trio_cogment.rl.run_trials` is an ordinary function.
"""

from trio_cogment.rl.runner._opening import open_run as open_run
from trio_cogment.rl.runner._opening import run_trials_async as run_trials_async
from trio_cogment.rl.runner._run import Run as Run
from trio_cogment.rl.runner.callbacks import MLflow as MLflow
from trio_cogment.rl.runner.callbacks import TensorBoard as TensorBoard
from trio_cogment.rl.runner.callbacks import TrialCallback as TrialCallback
from trio_cogment.rl.runner.callbacks import WeightsAndBiases as WeightsAndBiases
from trio_cogment.rl.runner.league import League as League
from trio_cogment.rl.runner.progress import Progress as Progress
from trio_cogment.rl.runner.results import Results as Results
from trio_cogment.rl.runner.results import RunFailedError as RunFailedError
from trio_cogment.rl.runner.results import TrialResult as TrialResult
