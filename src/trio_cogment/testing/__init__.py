"""Tools for testing what is built on this package: simulation, fake participants, conformance kits.

`docs/simulation.md` is the guide. The names below are resolved when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trio_cogment.testing._behaviour import Behaviour as Behaviour
    from trio_cogment.testing._behaviour import Misbehaviour as Misbehaviour
    from trio_cogment.testing._cancellation import CancellationError as CancellationError
    from trio_cogment.testing._cancellation import Cancellations as Cancellations
    from trio_cogment.testing._cancellation import Doomed as Doomed
    from trio_cogment.testing._cancellation import cancel_at_every_step as cancel_at_every_step
    from trio_cogment.testing._checkers import CHECKERS as CHECKERS
    from trio_cogment.testing._checkers import LEAST_ACK_SECONDS as LEAST_ACK_SECONDS
    from trio_cogment.testing._checkers import InvariantError as InvariantError
    from trio_cogment.testing._checkers import check_history as check_history
    from trio_cogment.testing._checkers import record_states as record_states
    from trio_cogment.testing._disk import PowerLossError as PowerLossError
    from trio_cogment.testing._disk import SimDisk as SimDisk
    from trio_cogment.testing._fake_services import FakeDatalog as FakeDatalog
    from trio_cogment.testing._fake_services import FakeHook as FakeHook
    from trio_cogment.testing._fakes import FakeActor as FakeActor
    from trio_cogment.testing._fakes import FakeEnvironment as FakeEnvironment
    from trio_cogment.testing._faulty_store import FaultyStore as FaultyStore
    from trio_cogment.testing._faulty_store import StoreFault as StoreFault
    from trio_cogment.testing._faulty_store import StoreFaults as StoreFaults
    from trio_cogment.testing._history import History as History
    from trio_cogment.testing._history import HistoryEvent as HistoryEvent
    from trio_cogment.testing._in_process import LatentChannel as LatentChannel
    from trio_cogment.testing._network import SimConnection as SimConnection
    from trio_cogment.testing._network import SimHost as SimHost
    from trio_cogment.testing._network import SimListener as SimListener
    from trio_cogment.testing._network import SimNetwork as SimNetwork
    from trio_cogment.testing._param_checkers import record_params as record_params
    from trio_cogment.testing._pipes import Link as Link
    from trio_cogment.testing._plan import Fault as Fault
    from trio_cogment.testing._plan import FaultPlan as FaultPlan
    from trio_cogment.testing._probe import Probe as Probe
    from trio_cogment.testing._recorded_calls import RecordedCalls as RecordedCalls
    from trio_cogment.testing._simulate import DEFAULT_BUDGET as DEFAULT_BUDGET
    from trio_cogment.testing._simulate import DeadlockError as DeadlockError
    from trio_cogment.testing._simulate import LivelockError as LivelockError
    from trio_cogment.testing._simulate import NondeterminismError as NondeterminismError
    from trio_cogment.testing._simulate import Outcome as Outcome
    from trio_cogment.testing._simulate import SimulationError as SimulationError
    from trio_cogment.testing._simulate import check_determinism as check_determinism
    from trio_cogment.testing._simulate import simulate as simulate
    from trio_cogment.testing._stream import SimStream as SimStream
    from trio_cogment.testing._trial_lines import TrialFileError as TrialFileError
    from trio_cogment.testing._trial_recorder import RecordedTrial as RecordedTrial
    from trio_cogment.testing._trial_recorder import TrialRecorder as TrialRecorder
    from trio_cogment.testing._trial_recorder import replay as replay
    from trio_cogment.testing._world import World as World

_HOMES = {
    "Behaviour": "_behaviour",
    "CHECKERS": "_checkers",
    "CancellationError": "_cancellation",
    "Cancellations": "_cancellation",
    "DEFAULT_BUDGET": "_simulate",
    "DeadlockError": "_simulate",
    "Doomed": "_cancellation",
    "FakeActor": "_fakes",
    "FakeDatalog": "_fake_services",
    "FakeEnvironment": "_fakes",
    "FakeHook": "_fake_services",
    "Fault": "_plan",
    "FaultPlan": "_plan",
    "FaultyStore": "_faulty_store",
    "History": "_history",
    "HistoryEvent": "_history",
    "InvariantError": "_checkers",
    "LatentChannel": "_in_process",
    "Link": "_pipes",
    "LEAST_ACK_SECONDS": "_checkers",
    "LivelockError": "_simulate",
    "Misbehaviour": "_behaviour",
    "NondeterminismError": "_simulate",
    "Outcome": "_simulate",
    "PowerLossError": "_disk",
    "Probe": "_probe",
    "RecordedCalls": "_recorded_calls",
    "RecordedTrial": "_trial_recorder",
    "SimConnection": "_network",
    "SimDisk": "_disk",
    "SimHost": "_network",
    "SimListener": "_network",
    "SimNetwork": "_network",
    "SimStream": "_stream",
    "SimulationError": "_simulate",
    "StoreFault": "_faulty_store",
    "StoreFaults": "_faulty_store",
    "TrialFileError": "_trial_lines",
    "TrialRecorder": "_trial_recorder",
    "World": "_world",
    "cancel_at_every_step": "_cancellation",
    "check_determinism": "_simulate",
    "check_history": "_checkers",
    "record_params": "_param_checkers",
    "record_states": "_checkers",
    "replay": "_trial_recorder",
    "simulate": "_simulate",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  the names are texts


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
