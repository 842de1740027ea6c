"""What holds for every test, and what some ask for."""

import logging
from collections.abc import Iterator

import hypothesis
import pytest

# A slow machine is no failure; a hang is found by the timeout of the whole test.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.fixture
def quiet() -> Iterator[None]:
    """Nothing is logged: what fakes do on purpose would be logged as what it would be."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
