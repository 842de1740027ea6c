"""The next trial of a match: started ahead of the `reset` that begins it, where its parameters allow that.

What a trial is started with is what its record says of it. So a `reset` with a seed or options, of a view whose
episodes are stored, starts a trial with these in its parameters, and the one that was started ahead is withdrawn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.rl.views.drivers import at_once, nothing
from trio_cogment.rl.views.parameters import recorded_params
from trio_cogment.rl.views.platforms import ViewPlatform
from trio_cogment.rl.views.rounds import Round

_logger = logging.getLogger(__name__)

#: After this many such resets in a row the next one is expected to be another: nothing is started ahead of it.
_TELLING_RESETS = 2


class NextRound:
    """The trial of the next episode, whose environment is in this process.

    Args:
        environment: its name, for the log.
        platform: where the trials run.
        params: of trials without a seed and options.
        make: makes the part of this process in a trial.
        ahead: a trial may be started before it is known whether it will be played.

    Attributes:
        waiting: the trial, once it has been started.
    """

    def __init__(
        self,
        environment: str,
        platform: ViewPlatform,
        params: TrialParams,
        make: Callable[[], Round],
        *,
        ahead: bool,
    ) -> None:
        self._environment = environment
        self._platform = platform
        self._params = params
        self._make = make
        self._ahead = ahead
        # Where nothing is kept, nobody reads the parameters; unless the trials run elsewhere, where that is not known.
        self._records = platform.options.records or not ahead
        self.waiting: Round | None = None
        self._tells = False
        self._telling = 0
        self._warned: set[str] = set()

    def prepare(self, seed: int | None, options: dict[str, Any] | None) -> Round:
        """Return the trial of an episode that is to begin like this, with everybody in place; or broken.

        It stays the next one until `take`; after an exception, or Control-C, `prepare` can be called again.
        """
        platform = self._platform
        tells = self._records and (seed is not None or bool(options))
        round_ = self.waiting
        if round_ is not None and (tells or self._tells):
            platform.driver.call(platform.withdraw, round_)
            round_ = self.waiting = None
        if round_ is None or not platform.is_up_to_date(round_):
            params = self._telling_params(seed, options) if tells else self._params
            round_ = self._start(params, tells)
        if not round_.is_parked():
            platform.driver.exchange(nothing, round_.is_parked)
        return round_

    def take(self) -> None:
        """Note that the trial which `prepare` returned is being played: it is not the next one any more."""
        self._telling = self._telling + 1 if self._tells else 0
        self.waiting = None

    def start_ahead(self) -> None:
        """Begin to start the trial after the one that is being played, if that may be."""
        if self._ahead and self._telling < _TELLING_RESETS:
            self._start(self._params, False)

    def withdraw(self) -> None:
        """End the trial if it has been started; it is not stored."""
        if self.waiting is not None:
            self._platform.driver.call(self._platform.withdraw, self.waiting)

    def _start(self, params: TrialParams, tells: bool) -> Round:
        round_ = self._make()
        platform = self._platform
        platform.driver.exchange(lambda: platform.launch(round_, params), at_once)
        self.waiting, self._tells = round_, tells
        return round_

    def _telling_params(self, seed: int | None, options: dict[str, Any] | None) -> TrialParams:
        params, missing = recorded_params(self._params, seed, options)
        for reason in missing:
            if reason not in self._warned:
                self._warned.add(reason)
                _logger.warning(
                    "environment %r: reset: left out of what is stored of the episode: %s", self._environment, reason
                )
        return params
