"""Room for trials in the server: for each of them, for those of one account, and for all together.

Sizes are estimates, on the safe side: a message takes more memory than its bytes on the wire, and a participant costs
something beside what it is sent. Whoever takes gives back, and nothing here waits: of two who ask for the last of it at
the same time one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from trio_cogment.access import Quotas
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.endpoints import is_client_endpoint
from trio_cogment.base.errors import QuotaError, ResourceExhaustedError
from trio_cogment.base.recount import Count
from trio_cogment.budget.byte_pool import BytePool, Loan
from trio_cogment.budget.shares import Shares

#: What a trial takes beside what is in the parameters; what a client actor does; and what any other participant does,
#: for which there are a task and a stream to somewhere.
TRIAL_BYTES = 10 * 1024
CLIENT_BYTES = 2 * 1024
SERVICE_BYTES = 6 * 1024


#: An observation of this many bytes is always kept.
FREE_OBSERVATION_BYTES = 32 * 1024
#: So much a trial may always hold back of its samples.
LEAST_HELD_BACK_BYTES = 64 * 1024
#: Samples of this many ticks are held back by every trial.
_USUAL_TICKS = 2


def check_counts(params: TrialParams, config: OrchestratorConfig) -> None:
    """Refuse parameters with too many actors or endpoints, before anything is done for each of them.

    Raises:
        ResourceExhaustedError: naming the limit.
    """
    actors = len(params.actors)
    if actors > config.max_trial_actors:
        raise ResourceExhaustedError(f"actors: {actors}; max_trial_actors is {config.max_trial_actors}")
    if actors < config.max_trial_endpoints:
        return
    endpoints = {actor.endpoint for actor in params.actors if not is_client_endpoint(actor.endpoint)}
    if len(endpoints) > config.max_trial_endpoints:
        raise ResourceExhaustedError(
            f"actors: {len(endpoints)} different endpoints; max_trial_endpoints is {config.max_trial_endpoints}"
        )


def estimated_bytes(params: TrialParams) -> int:
    """Return about how much memory a trial with these parameters takes."""
    clients = sum(is_client_endpoint(actor.endpoint) for actor in params.actors)
    services = len(params.actors) - clients + 1
    return TRIAL_BYTES + CLIENT_BYTES * clients + SERVICE_BYTES * services + 2 * params.ByteSize()


class Room:
    """Counts trials and their bytes.

    Args:
        config: the limits.

    Attributes:
        trials, starting, bytes, observed: how many there are, how many of them are starting, about how many bytes they
            hold, and the size of the large observations that are kept.
        held_back: for samples that are held back for late rewards.
    """

    def __init__(self, config: OrchestratorConfig) -> None:
        self.trials = Shares("trials", ("max_trials", config.max_trials), ("max_peer_trials", config.max_peer_trials))
        self.starting = Shares(
            "starting trials",
            ("max_starting_trials", config.max_starting_trials),
            ("max_peer_starting_trials", config.max_peer_starting_trials),
        )
        self.bytes = Shares(
            "bytes of trials",
            ("max_trials_bytes", config.max_trials_bytes),
            ("max_peer_trials_bytes", config.max_peer_trials_bytes),
        )
        self.observed = Shares(
            "bytes of observations",
            ("max_observations_bytes", config.max_observations_bytes),
            ("max_peer_observations_bytes", config.max_peer_observations_bytes),
        )
        self.max_held_back = config.max_held_back_bytes
        self.held_back = BytePool(config.max_all_held_back_bytes)

    @property
    def used(self) -> tuple[int, int, int]:
        """How many trials there are, how many of them are starting, and about how many bytes they hold."""
        return self.trials.used, self.starting.used, self.bytes.used

    @property
    def observed_bytes(self) -> int:
        """The size of the large observations that are kept."""
        return self.observed.used

    def enter(self, account: str, quotas: Quotas | None = None, run_id: str = "") -> Holding:
        """Count a trial that starts; `Holding.started` and `Holding.leave` must follow.

        Args:
            account: whose it is; empty: this process's, for which only the limits of the server hold.
            quotas: what the account may have; None: as much as any.
            run_id: see `Holding`.

        Raises:
            ResourceExhaustedError: there are too many; the text names the limit.
        """
        quotas = quotas or Quotas()
        quota = quotas.trials
        if quota is not None and self.trials.used_by(account) >= quota:
            raise QuotaError(f"the quota of {quota} trials of this account is used up")
        reached = self.trials.reached(account) or self.starting.reached(account)
        if reached is not None:
            raise ResourceExhaustedError(
                f"too many trials: {reached.name} is {reached.limit}; try again when some have ended"
            )
        self.trials.count(account)
        self.starting.count(account)
        return Holding(self, account, quotas, run_id)

    def _observe(self, account: str, before: int, size: int) -> bool:
        """Keep an observation instead of another one, if there is room; 0 for none."""
        more = size - before
        kept = more <= 0 or self.observed.reached(account, more) is None
        self.observed.count(account, more if kept else -before)
        return kept

    def _take(self, account: str, size: int) -> None:
        reached = self.bytes.reached(account, size)
        if reached is not None:
            raise ResourceExhaustedError(
                f"the trials that run hold {reached.used} bytes and this would add {size}: {reached.name} is "
                f"{reached.limit}; try again when some have ended"
            )
        self.bytes.count(account, size)


class Holding:
    """What one trial takes.

    Attributes:
        account: whose it is.
        quotas: what the account may have.
        run_id: of which run of a trainer it is a worker; empty: of none.
        size: about how many bytes.
    """

    __slots__ = ("_held_back", "_observed", "_room", "_starting", "account", "quotas", "run_id", "size")

    def __init__(self, room: Room, account: str, quotas: Quotas, run_id: str = "") -> None:
        self._room: Room | None = room
        self._starting = True
        self._observed = 0
        self._held_back: Loan | None = None
        self.account = account
        self.quotas = quotas
        self.run_id = run_id
        self.size = 0

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        yield Count("bytes of a trial", self.size, self.size if self._room is not None else 0)
        yield Count("its observation", self._observed, self._observed if self._room is not None else 0)

    def take(self, size: int) -> None:
        """Count bytes that the trial begins to hold.

        Raises:
            ResourceExhaustedError: it would be too much; the text names the limit, and nothing was counted.
        """
        if self._room is not None:
            self._room._take(self.account, size)
            self.size += size

    def observe(self, size: int) -> bool:
        """Keep an observation of this many bytes instead of the last one; False: there is no room, and none is kept."""
        if self._room is None:
            return False
        if size <= FREE_OBSERVATION_BYTES:
            size = 0
        if size == self._observed:
            return True
        kept = self._room._observe(self.account, self._observed, size)
        self._observed = size if kept else 0
        return kept

    def hold_back(self, ticks: int) -> int | None:
        """Return how many bytes of samples the trial may hold back until it is over; None: it wants few of them."""
        room = self._room
        if room is None or ticks <= _USUAL_TICKS:
            return None
        self._held_back = loan = room.held_back.loan()
        loan.set(max(LEAST_HELD_BACK_BYTES, int(min(room.max_held_back, loan.most()))))
        return loan.size

    def started(self) -> None:
        """The trial has started, or could not: it no longer counts as starting."""
        if self._starting and self._room is not None:
            self._starting = False
            self._room.starting.count(self.account, -1)

    def leave(self) -> None:
        """Give everything back; nothing happens the second time."""
        self.started()
        self.observe(0)
        if self._held_back is not None:
            self._held_back.close()
        room, self._room = self._room, None
        if room is not None:
            room.trials.count(self.account, -1)
            room.bytes.count(self.account, -self.size)
            self.size = 0
