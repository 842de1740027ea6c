"""Processes that have left their group are found, in a process of its own: whatever comes of it counts."""

from __future__ import annotations

import subprocess
import sys

from trio_cogment.base.host.processes import processes

PROGRAM = """
import os, signal, subprocess, time
from trio_cogment.cli.launching import Strays

DAEMON = '''
import os, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(writing, b"x")
        time.sleep(1000)
    os._exit(0)
os.read(reading, 1)
'''

with Strays() as find:
    assert find([]) == []
    child = subprocess.Popen(["python3", "-c", DAEMON], stdout=subprocess.PIPE)
    daemon = int(child.stdout.readline())
    child.wait()
    assert daemon in find([])
    os.kill(daemon, signal.SIGKILL)
    while find([]):
        time.sleep(0.01)
    # It has been buried, too.
    try:
        os.kill(daemon, 0)
    except ProcessLookupError:
        print("gone")

    # Somebody else waits for this one.
    leader = subprocess.Popen(["true"])
    os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
    assert find([leader.pid]) == []
    assert leader.wait() == 0
"""


def test_a_daemon_is_found_and_buried() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "gone\n", "")


def test_processes_are_told_with_their_groups() -> None:
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        (found,) = [process for process in processes() or () if process.pid == child.pid]
        assert found.group == child.pid
        assert not found.ended
    finally:
        child.kill()
        child.wait()
