"""Configurations of runs for tests."""

from __future__ import annotations

import json
from typing import Any


def a_document(**changes: Any) -> dict[str, Any]:
    """Return a valid configuration, with some of its keys changed; those that are None are left out."""
    document = {
        "run_name": "cartpole",
        "entry_point": "python",
        "arguments": ["-m", "train"],
        "environment": {"SEED": "1"},
        "resources": {"cpus": 1, "memory_mb": 256, "gpus": {"requested": 0}},
        "artifacts": {"output_prefix": "out"},
        **changes,
    }
    return {name: value for name, value in document.items() if value is not None}


def a_config(**changes: Any) -> str:
    """Return the same as JSON."""
    return json.dumps(a_document(**changes))
