"""A cluster of Ray on this machine, on loopback only: nodes that come and go, and processes that are ended by id."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: With this Ray keeps what Linux sends between its processes on loopback.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
#: How often the start of a node is tried. On a busy machine a raylet gives up when its agent, a program in Python, has
#: not said within 15 s where it listens, which no setting changes. The next agent finds its files in memory.
_STARTS = 4
#: Ray's own times, in which a host that hangs is noticed after more than a minute.
PATIENT = "TRIO_COGMENT_RAY_PATIENT"
#: Times with which it takes seconds.
_IMPATIENT = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 4000,
    "health_check_failure_threshold": 3,
}


@dataclass
class Grid:
    """A head without room for workers, and nodes that each have room for two.

    Attributes:
        cluster: of Ray's own test tools.
        nodes: those beside the head.
    """

    cluster: Any
    nodes: list[Any]

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Grid]:
        """Start a head, and connect to it; end every process that was started."""
        os.environ.update(LOOPBACK, RAY_worker_niceness="0", RAY_AUTH_MODE="disabled")
        from ray.cluster_utils import Cluster

        import ray

        head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False}
        if PATIENT not in os.environ:
            head["_system_config"] = _IMPATIENT
        cluster = Cluster()
        grid = cls(cluster, [])
        try:
            started_again(lambda: cluster.add_node(**head))
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            yield grid
        finally:
            started = descendants(os.getpid())
            ray.shutdown()
            cluster.shutdown()
            for pid in started:
                end(pid)

    def have(self, count: int) -> list[Any]:
        """Return this many nodes that live, after starting those that are missing."""
        while len(self.nodes) < count:
            self.nodes.append(started_again(lambda: self.cluster.add_node(num_cpus=2, resources={"room": 2})))
        self.cluster.wait_for_nodes()
        return self.nodes[:count]

    def remove(self, node: Any) -> None:
        """Remove a node in good order."""
        self.nodes.remove(node)
        self.cluster.remove_node(node)

    def forget(self, node: Any) -> None:
        """Forget a node that was killed, and end what is left of it."""
        pids = [each.process.pid for processes in node.all_processes.values() for each in processes]
        self.nodes.remove(node)
        with suppress(Exception):
            self.cluster.remove_node(node, allow_graceful=False)
        for pid in pids:
            end(pid)


def started_again(start: Callable[[], Any]) -> Any:
    """Start a node, again if need be, without what an attempt has left behind.

    Raises:
        AssertionError: it has not started; the text has the errors of Ray's logs.
    """
    before = set(descendants(os.getpid()))
    for attempt in range(_STARTS):
        try:
            return start()
        except Exception as error:  # Ray raises nothing more exact
            if attempt == _STARTS - 1:
                raise AssertionError(f"a node of Ray does not start: {error}\n{logged_errors()}") from error
            for pid in set(descendants(os.getpid())) - before:
                end(pid)
    raise AssertionError


def logged_errors() -> str:
    """Return what the nodes of the newest session have logged as errors."""
    logs = Path("/tmp/ray/session_latest/logs")
    lines = [f"{path.name}: {line}" for path in sorted(logs.glob("*.*")) for line in path.read_text().splitlines()]
    return "\n".join(line for line in lines if "Check failed" in line or " E " in line)


def raylet_of(node: Any) -> int:
    """Return the id of a node's raylet."""
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid


def parent_of(pid: int) -> int:
    """Return the id of a process's parent; 0 if it is gone."""
    with suppress(OSError):
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return 0 if state == "Z" else int(parent)
    return 0


def lives(pid: int) -> bool:
    """Whether a process runs, or is stopped."""
    return parent_of(pid) != 0


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes that a process, or one of these, has started."""
    parents = {int(path.name): parent_of(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def end(pid: int) -> None:
    """End a process at once; nothing if it is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.05)


def with_deadline(is_so: Callable[[], bool], seconds: float) -> None:
    """Wait until something is so."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if is_so():
            return
        pause.wait(0.05)
    raise AssertionError(f"expected it within {seconds} s")
