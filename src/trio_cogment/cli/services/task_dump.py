"""A dump of every task of a process, as lines, for whoever stops a server because it does nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import trio

from trio_cogment.cli.text import printable, shortened

#: Tasks beyond these are only counted, and of each only the innermost frames are shown.
MAX_TASKS = 500
MAX_FRAMES = 12
#: Names have ids of trials and addresses in them, which peers have chosen.
_NAME_CHARACTERS = 120


def task_lines() -> list[str]:
    """Return the tree of tasks, each with its stack, the innermost frame last. Call it in a task."""
    root = trio.lowlevel.current_root_task()
    lines: list[str] = []
    count = 0
    for depth, task in _tasks(root):
        count += 1
        if count <= MAX_TASKS:
            lines.extend(_of_task(depth, task))
    if count > MAX_TASKS:
        lines.append(f"... and {count - MAX_TASKS} more tasks")
    return [f"{count} tasks:", *lines]


def _tasks(root: trio.lowlevel.Task | None) -> Iterator[tuple[int, trio.lowlevel.Task]]:
    found = [] if root is None else [(0, root)]
    while found:
        depth, task = found.pop()
        yield depth, task
        children = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        found.extend((depth + 1, child) for child in sorted(children, key=lambda child: child.name, reverse=True))


def _of_task(depth: int, task: trio.lowlevel.Task) -> list[str]:
    indent = "  " * min(depth, 20)
    frames = [
        f"{indent}    {os.path.basename(os.path.dirname(frame.f_code.co_filename))}/"
        f"{os.path.basename(frame.f_code.co_filename)}:{line} {frame.f_code.co_qualname}"
        for frame, line in task.iter_await_frames()
    ]
    return [f"{indent}- {printable(shortened(task.name, _NAME_CHARACTERS))}", *frames[-MAX_FRAMES:]]
