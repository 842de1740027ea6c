"""Environments of Gymnasium, PettingZoo and dm_env as the environments of trials.

All of it needs NumPy, the extra `arrays`; Gymnasium and the others are imported when one of their environments is made.
"""

from __future__ import annotations

# Before any module of this package imports NumPy: this says what to install if it is missing.
from trio_cogment import spaces

__all__ = [
    "spaces",
]
