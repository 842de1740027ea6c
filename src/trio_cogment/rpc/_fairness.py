"""Checkpoints of operations that need not wait: how often they let other tasks run.

An async function of Trio is a checkpoint: it notices cancellation, and other tasks get their turn. The full checkpoint
(`trio.lowlevel.checkpoint`) puts the task at the end of the run queue, which costs about as much as handling a small
message. Where a message or room for one is there already, calls therefore check for cancellation each time and yield
only each sixteenth time: a busy sender or receiver costs little, and keeps other tasks waiting for no more than
sixteen messages.
"""

from __future__ import annotations

#: Operations that did not have to wait are let through without yielding this many times in a row.
OPERATIONS_PER_CHECKPOINT = 16
