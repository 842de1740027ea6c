"""Tools for testing what is built on this package; `docs/simulation.md` is the guide.

Most faults of a distributed program need a rare order of events. A simulated run makes rare orders cheap: the program
is the real one, but everything that comes from outside is a function of a seed, namely the order of tasks, the clock,
the network, the disk, ids and randomness. Time jumps when everybody waits, so a day passes in seconds, and a seed that
fails fails again.

A run records what happened, as seen by fake participants and by probes inside. Whether that was right is judged
afterwards, by checkers over the record that know what must hold whatever went wrong. So a scenario has no assertions
about particular faults, and a new fault needs no new test.

- `sim`: simulated runs: the schedule, the clock, the network, the disk, and faults to put into them.
- `fakes`: participants, hooks, data logs, storages and a directory that do as a test tells them, right or wrong.
- `checkers`: what must hold in every run, over its `history`.
- `conformance`: kits of cases that an implementation of an interface has to pass.
- `pytest_plugin`: fixtures and options for pytest.

The names below are resolved when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_cogment.base.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from trio_cogment.testing._recorded_calls import RecordedCalls as RecordedCalls
    from trio_cogment.testing.checkers.check_history import CHECKERS as CHECKERS
    from trio_cogment.testing.checkers.check_history import InvariantError as InvariantError
    from trio_cogment.testing.checkers.check_history import check_history as check_history
    from trio_cogment.testing.checkers.linearizable import LOST as LOST
    from trio_cogment.testing.checkers.linearizable import CallLog as CallLog
    from trio_cogment.testing.checkers.linearizable import LoggedCall as LoggedCall
    from trio_cogment.testing.checkers.linearizable import NotLinearizableError as NotLinearizableError
    from trio_cogment.testing.checkers.linearizable import SequentialModel as SequentialModel
    from trio_cogment.testing.checkers.linearizable import UndecidedError as UndecidedError
    from trio_cogment.testing.checkers.linearizable import check_linearizable as check_linearizable
    from trio_cogment.testing.checkers.params import record_params as record_params
    from trio_cogment.testing.checkers.probe import Probe as Probe
    from trio_cogment.testing.checkers.sessions import LEAST_ACK_SECONDS as LEAST_ACK_SECONDS
    from trio_cogment.testing.checkers.states import record_states as record_states
    from trio_cogment.testing.conformance.blobs import check_blobs as check_blobs
    from trio_cogment.testing.conformance.channel import check_channel as check_channel
    from trio_cogment.testing.conformance.trial_store import check_trial_store as check_trial_store
    from trio_cogment.testing.fakes.behaviour import Behaviour as Behaviour
    from trio_cogment.testing.fakes.behaviour import Misbehaviour as Misbehaviour
    from trio_cogment.testing.fakes.datalog import FakeDatalog as FakeDatalog
    from trio_cogment.testing.fakes.directory import FakeDirectory as FakeDirectory
    from trio_cogment.testing.fakes.faulty_store import FaultyStore as FaultyStore
    from trio_cogment.testing.fakes.faulty_store import StoreFault as StoreFault
    from trio_cogment.testing.fakes.faulty_store import StoreFaults as StoreFaults
    from trio_cogment.testing.fakes.participants import FakeActor as FakeActor
    from trio_cogment.testing.fakes.participants import FakeEnvironment as FakeEnvironment
    from trio_cogment.testing.fakes.participants import FakeHook as FakeHook
    from trio_cogment.testing.history import History as History
    from trio_cogment.testing.history import HistoryEvent as HistoryEvent
    from trio_cogment.testing.sim.cancellation import CancellationError as CancellationError
    from trio_cogment.testing.sim.cancellation import Cancellations as Cancellations
    from trio_cogment.testing.sim.cancellation import CancelledBlock as CancelledBlock
    from trio_cogment.testing.sim.cancellation import cancel_at_every_step as cancel_at_every_step
    from trio_cogment.testing.sim.delayed_channel import DelayedChannel as DelayedChannel
    from trio_cogment.testing.sim.disk import PowerLossError as PowerLossError
    from trio_cogment.testing.sim.disk import SimDisk as SimDisk
    from trio_cogment.testing.sim.fault_plan import Fault as Fault
    from trio_cogment.testing.sim.fault_plan import FaultPlan as FaultPlan
    from trio_cogment.testing.sim.links import Link as Link
    from trio_cogment.testing.sim.network import SimConnection as SimConnection
    from trio_cogment.testing.sim.network import SimHost as SimHost
    from trio_cogment.testing.sim.network import SimListener as SimListener
    from trio_cogment.testing.sim.network import SimNetwork as SimNetwork
    from trio_cogment.testing.sim.recounts import Counts as Counts
    from trio_cogment.testing.sim.simulate import DEFAULT_BUDGET as DEFAULT_BUDGET
    from trio_cogment.testing.sim.simulate import DeadlockError as DeadlockError
    from trio_cogment.testing.sim.simulate import LivelockError as LivelockError
    from trio_cogment.testing.sim.simulate import NondeterminismError as NondeterminismError
    from trio_cogment.testing.sim.simulate import Outcome as Outcome
    from trio_cogment.testing.sim.simulate import SimulationError as SimulationError
    from trio_cogment.testing.sim.simulate import check_determinism as check_determinism
    from trio_cogment.testing.sim.simulate import simulate as simulate
    from trio_cogment.testing.sim.stream import SimStream as SimStream
    from trio_cogment.testing.sim.world import World as World

_HOMES = {
    "Behaviour": "fakes.behaviour",
    "CHECKERS": "checkers.check_history",
    "CallLog": "checkers.linearizable",
    "CancellationError": "sim.cancellation",
    "Cancellations": "sim.cancellation",
    "Counts": "sim.recounts",
    "DEFAULT_BUDGET": "sim.simulate",
    "DeadlockError": "sim.simulate",
    "CancelledBlock": "sim.cancellation",
    "FakeActor": "fakes.participants",
    "FakeDatalog": "fakes.datalog",
    "FakeDirectory": "fakes.directory",
    "FakeEnvironment": "fakes.participants",
    "FakeHook": "fakes.participants",
    "Fault": "sim.fault_plan",
    "FaultPlan": "sim.fault_plan",
    "FaultyStore": "fakes.faulty_store",
    "History": "history",
    "HistoryEvent": "history",
    "InvariantError": "checkers.check_history",
    "LEAST_ACK_SECONDS": "checkers.sessions",
    "LOST": "checkers.linearizable",
    "DelayedChannel": "sim.delayed_channel",
    "Link": "sim.links",
    "LivelockError": "sim.simulate",
    "LoggedCall": "checkers.linearizable",
    "Misbehaviour": "fakes.behaviour",
    "NondeterminismError": "sim.simulate",
    "NotLinearizableError": "checkers.linearizable",
    "Outcome": "sim.simulate",
    "PowerLossError": "sim.disk",
    "Probe": "checkers.probe",
    "RecordedCalls": "_recorded_calls",
    "SequentialModel": "checkers.linearizable",
    "SimConnection": "sim.network",
    "SimDisk": "sim.disk",
    "SimHost": "sim.network",
    "SimListener": "sim.network",
    "SimNetwork": "sim.network",
    "SimStream": "sim.stream",
    "SimulationError": "sim.simulate",
    "StoreFault": "fakes.faulty_store",
    "StoreFaults": "fakes.faulty_store",
    "UndecidedError": "checkers.linearizable",
    "World": "sim.world",
    "cancel_at_every_step": "sim.cancellation",
    "check_blobs": "conformance.blobs",
    "check_channel": "conformance.channel",
    "check_determinism": "sim.simulate",
    "check_history": "checkers.check_history",
    "check_linearizable": "checkers.linearizable",
    "check_trial_store": "conformance.trial_store",
    "record_params": "checkers.params",
    "record_states": "checkers.states",
    "simulate": "sim.simulate",
}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES)
__all__ = sorted(_HOMES)  # noqa: PLE0605  the names are texts
