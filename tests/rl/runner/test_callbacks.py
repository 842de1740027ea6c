"""The adapters to trackers, with modules that only look like them, and with the real ones where they are installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.rl.runner import MLflow, Results, TensorBoard, TrialResult, WeightsAndBiases

RESULT = TrialResult(3, "t", 7, "here", ticks=12, seconds=0.5, returns={"player_0": 1.25})
METRICS = {"ticks": 12.0, "seconds": 0.5, "failed": 0.0, "return/player_0": 1.25}


def results() -> Results:
    return Results.of([RESULT], ["player_0"], requested=1)


class Calls:
    """An object whose methods remember how they were called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.append((name, *args, *kwargs.items()))


def test_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Calls()
    module = SimpleNamespace(SummaryWriter=lambda log_dir: writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    callback = TensorBoard("runs/one", prefix="t/")
    callback.on_trial_end(RESULT)
    callback.on_run_end(results())
    assert writer.calls == [*(("add_scalar", f"t/{name}", value, 3) for name, value in METRICS.items()), ("close",)]


def test_tensorboard_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    writer = Calls()
    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=lambda log_dir: writer))
    TensorBoard("runs/one").on_trial_end(RESULT)
    assert ("add_scalar", "trial/ticks", 12.0, 3) in writer.calls


class Wandb(Calls):
    def __init__(self) -> None:
        super().__init__()
        self.summary: dict[str, Any] = {}


def test_weights_and_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    run, given = Wandb(), {}

    def init(**arguments: Any) -> Wandb:
        given.update(arguments)
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    callback = WeightsAndBiases(project="duel")
    callback.on_trial_end(RESULT)
    callback.on_run_end(results())
    assert given == {"project": "duel"}
    assert run.calls == [("log", {**METRICS, "trial": 3}), ("finish", ("exit_code", 0))]
    assert run.summary == {"trials": 1, "failures": 0}


def test_a_run_of_weights_and_biases_that_is_given_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    run = Wandb()
    WeightsAndBiases(run).on_run_end(results())
    assert run.calls == []


class Mlflow(Calls):
    def start_run(self, **arguments: Any) -> Any:
        self.calls.append(("start_run", *arguments.items()))
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))


def test_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Mlflow()
    monkeypatch.setitem(sys.modules, "mlflow", module)
    callback = MLflow(experiment_id="9")
    callback.on_trial_end(RESULT)
    callback.on_run_end(results())
    logged = ("log_metrics", METRICS, ("step", 3), ("run_id", "r1"), ("synchronous", False))
    assert module.calls == [("start_run", ("experiment_id", "9")), logged, ("flush_async_logging",), ("end_run",)]


def test_a_run_of_mlflow_that_is_given_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Mlflow()
    monkeypatch.setitem(sys.modules, "mlflow", module)
    MLflow("mine").on_run_end(results())
    assert module.calls == [("flush_async_logging",)]


@pytest.mark.parametrize(
    ("make", "modules", "package"),
    [
        (lambda: TensorBoard("x"), ["torch.utils.tensorboard", "tensorboardX"], "tensorboardX"),
        (WeightsAndBiases, ["wandb"], "wandb"),
        (MLflow, ["mlflow"], "mlflow"),
    ],
)
def test_a_package_that_is_missing(
    make: Any, modules: list[str], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(FailedPreconditionError, match=f"{package} is not installed: pip install {package}"):
        make()
