"""Callbacks of a run: their protocol, and adapters to TensorBoard, W&B and MLflow.

The adapters need the package that they are for, and nothing of it is imported before one is made. All three hand their
values to a thread or process of that package; so a run does not wait for a disk or a server.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from typing_extensions import override

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.rl.runner.results import Results, TrialResult


class TrialCallback(Protocol):
    """Is told about the trials of a run; inherit from it, and write what is needed.

    Every method is called in the run's task, and may be asynchronous. What it raises ends the run: the trials that run
    are ended hard, and the exception comes out of the run.
    """

    def on_run_start(self, requested: int) -> Awaitable[None] | None:
        """Be told that a run of this many trials begins."""
        return None

    def on_trial_start(self, index: int, seed: int | None, trial_id: str) -> Awaitable[None] | None:
        """Be told that a trial was started; its retries are told again."""
        return None

    def on_trial_end(self, result: TrialResult) -> Awaitable[None] | None:
        """Be told that a trial has ended, or failed and is not repeated; in the order in which they end."""
        return None

    def on_run_end(self, results: Results) -> Awaitable[None] | None:
        """Be told that the run is over, or was stopped in good order."""
        return None


def metrics_of(result: TrialResult) -> Mapping[str, float]:
    """Return what the adapters write about a trial, by name; actors that are unknown are left out."""
    metrics = {"ticks": float(result.ticks), "seconds": result.seconds, "failed": float(result.failed)}
    return metrics | {f"return/{actor}": value for actor, value in result.returns.items()}


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise FailedPreconditionError(f"{package} is not installed: pip install {package}") from None


class TensorBoard(TrialCallback):
    """Writes each trial's return, ticks and seconds as scalars for TensorBoard; the step is the trial's index.

    Args:
        log_dir: the folder of the event files.
        prefix: before the names of the scalars.

    Raises:
        FailedPreconditionError: neither PyTorch nor tensorboardX is there to write with, or TensorBoard is not.
    """

    def __init__(self, log_dir: str, *, prefix: str = "trial/") -> None:
        try:
            module = _imported("torch.utils.tensorboard", "tensorboard")
        except FailedPreconditionError:
            module = _imported("tensorboardX", "tensorboardX")
        self._writer = module.SummaryWriter(log_dir)
        self._prefix = prefix

    @override
    def on_trial_end(self, result: TrialResult) -> None:
        for name, value in metrics_of(result).items():
            self._writer.add_scalar(self._prefix + name, value, result.index)

    @override
    def on_run_end(self, results: Results) -> None:
        self._writer.close()


class WeightsAndBiases(TrialCallback):
    """Logs each trial to Weights & Biases.

    Args:
        run: a run of `wandb.init`, which stays open; by default one is begun with the other arguments, and finished.
        **arguments: of `wandb.init`.

    Raises:
        FailedPreconditionError: wandb is not installed.
    """

    def __init__(self, run: Any = None, **arguments: Any) -> None:
        self._own = run is None
        self._run = _imported("wandb", "wandb").init(**arguments) if run is None else run

    @override
    def on_trial_end(self, result: TrialResult) -> None:
        self._run.log({**metrics_of(result), "trial": result.index})

    @override
    def on_run_end(self, results: Results) -> None:
        self._run.summary["trials"] = len(results)
        self._run.summary["failures"] = len(results.failures)
        if self._own:
            self._run.finish(exit_code=0)


class MLflow(TrialCallback):
    """Logs each trial to MLflow; the step is the trial's index.

    Args:
        run_id: a run that exists, and stays open; by default one is begun with the other arguments, and ended.
        **arguments: of `mlflow.start_run`.

    Raises:
        FailedPreconditionError: mlflow is not installed.
    """

    def __init__(self, run_id: str = "", **arguments: Any) -> None:
        self._mlflow = _imported("mlflow", "mlflow")
        self._own = not run_id
        self._run_id = run_id or self._mlflow.start_run(**arguments).info.run_id

    @override
    def on_trial_end(self, result: TrialResult) -> None:
        metrics = dict(metrics_of(result))
        self._mlflow.log_metrics(metrics, step=result.index, run_id=self._run_id, synchronous=False)

    @override
    def on_run_end(self, results: Results) -> None:
        self._mlflow.flush_async_logging()
        if self._own:
            self._mlflow.end_run()
