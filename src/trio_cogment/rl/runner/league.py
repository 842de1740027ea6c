"""A league: stored versions of a policy as opponents, chosen by how the learner fares against them."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.environments.trial_seeds import seed_of
from trio_cogment.rl.runner import ratings
from trio_cogment.rl.runner.callbacks import TrialCallback
from trio_cogment.rl.runner.matchmaking import Matchmaking, matchmaking
from trio_cogment.rl.runner.results import TrialResult
from trio_cogment.sdk import ActorImplementation, ActorSession, ModelRegistryClient
from trio_cogment.seats.base import Seat, SeatContext
from trio_cogment.seats.scripted import policy

#: How a rating begins.
_FIRST_RATING = 1000.0


class League(TrialCallback):
    """Opponents from a model registry: each trial gets a version, and its result counts for the next choice.

    Give `seat()` to the seats that opponents take, and the league itself to the callbacks of the run:

    ```python
    league = League(registry, "duel", load=load_policy, learner="player_0")
    seats = {"player_0": policy(learner), "player_1": league.seat()}
    await run_trials_async(100, environment="rps_v2", callbacks=[league], seats=seats)
    ```

    The learner wins against an opponent if its return is higher. In a trial with a seed, the choice depends on that,
    the league's seed, the versions, and how the learner fared before the run: so it is the same whatever other trials
    the run has, and in which order they end. Without seeds each result counts for the next choice; then matches are
    equal with equal league's seeds, equal versions and `parallel=1`.

    Args:
        registry: has the versions.
        name: of the model.
        load: makes a policy of a version's bytes, as `trio_cogment.rl.policy` takes it.
        learner: the actor who learns; the results of others than it and the league's opponents do not count.
        matchmaking: "latest", "uniform", "pfsp" (those against which the learner wins least are chosen most often), or
            a function; see `trio_cogment.rl.runner.matchmaking`.
        seed: of the choices; None for another one each time, in trials that have none either.
        newest: how many of the newest versions are opponents; 0: all.
        kept: how many loaded policies are kept in memory.

    Attributes:
        rating: of the learner, by Elo's model; it begins at 1000, as the opponents do.
    """

    def __init__(
        self,
        registry: ModelRegistryClient,
        name: str,
        *,
        load: Callable[[bytes], Any],
        learner: str = "player_0",
        matchmaking: str | Matchmaking = "pfsp",
        seed: int | None = None,
        newest: int = 0,
        kept: int = 8,
    ) -> None:
        self.name = name
        self.rating = _FIRST_RATING
        self._registry = registry
        self._load = load
        self._learner = learner
        self._choose = _matchmaking(matchmaking)
        self._seed = seed
        self._rng = random.Random(seed)
        self._newest = newest
        self._kept = kept
        self._policies: OrderedDict[int, Any] = OrderedDict()
        self._records: dict[int, ratings.Record] = {}
        #: The learner's win rates when the run began.
        self._rates_before: dict[int, float] = {}
        self._ratings: dict[int, float] = {}
        #: The opponents of the trials that run: actors and their versions.
        self._matches: dict[str, dict[str, int]] = {}

    def seat(self, **options: Any) -> Seat:
        """Return a seat for an opponent; one object may take several.

        Args:
            **options: of every seat: `optional`, `default`, `response_timeout_seconds`.
        """
        return _LeagueSeat(self, **options)

    async def add(self, data: bytes) -> int:
        """Store a version of the policy, for example the learner's present one; return its number."""
        return (await self._registry.store(self.name, data)).version_number

    async def versions(self) -> Sequence[int]:
        """Return the numbers of the versions that are opponents now, the oldest first."""
        found = [info.version_number async for info in self._registry.list_versions(self.name)]
        return found[-self._newest :] if self._newest else found

    def win_rate(self, version: int) -> float:
        """Return the learner's mean score against a version, 1 for a win, with one drawn game added."""
        return self._records.get(version, ratings.Record()).win_rate

    def games(self, version: int) -> int:
        """Return how many games against a version have been counted."""
        return self._records.get(version, ratings.Record()).games

    def rating_of(self, version: int) -> float:
        """Return the rating of a version."""
        return self._ratings.get(version, _FIRST_RATING)

    def record(self, version: int, score: float) -> None:
        """Count a game of the learner against a version: 1 for its win, 0.5 for a draw, 0 for a loss."""
        self._records.setdefault(version, ratings.Record()).add(score)
        self.rating, self._ratings[version] = ratings.updated(self.rating, self.rating_of(version), score)

    def on_run_start(self, requested: int) -> None:
        """Note how the learner has fared until now; see `TrialCallback`."""
        self._rates_before = {version: record.win_rate for version, record in self._records.items()}

    def on_trial_end(self, result: TrialResult) -> None:
        """Count a trial; see `TrialCallback`. One that failed, or whose returns are unknown, does not count."""
        opponents = self._matches.pop(result.trial_id, {})
        own = result.returns.get(self._learner)
        if result.failed or own is None:
            return
        for actor, version in opponents.items():
            other = result.returns.get(actor)
            if other is not None:
                self.record(version, 1.0 if own > other else 0.0 if own < other else 0.5)

    async def _opponent(self, trial_id: str, actor: str) -> Any:
        """Choose a version for an actor of a trial, and return its policy."""
        versions = await self.versions()
        if not versions:
            raise FailedPreconditionError(
                f"actor {actor!r}: league {self.name!r}: expected a version of the model, and there is none yet; "
                "league.add(...) stores the first"
            )
        seed = seed_of(trial_id)
        if seed is None:
            rates, rng = {version: self.win_rate(version) for version in versions}, self._rng
        else:
            unknown = ratings.Record().win_rate
            rates = {version: self._rates_before.get(version, unknown) for version in versions}
            rng = random.Random(f"{self._seed} {seed} {actor}")
        version = self._choose(versions, rates, rng)
        self._matches.setdefault(trial_id, {})[actor] = version
        if version not in self._policies:
            _, data = await self._registry.retrieve(self.name, version)
            self._policies[version] = self._load(data)
        self._policies.move_to_end(version)
        while len(self._policies) > self._kept:
            self._policies.popitem(last=False)
        return self._policies[version]


#: The argument of this name hides the function.
_matchmaking = matchmaking


class _LeagueSeat(Seat):
    """See `League.seat`."""

    label = "league"

    def __init__(self, league: League, **options: Any) -> None:
        super().__init__(**options)
        self._league = league

    @override
    def actor(self, context: SeatContext) -> ActorImplementation:
        async def sit(session: ActorSession[Any, Any, Any]) -> None:
            chosen = policy(await self._league._opponent(session.trial_id, session.name))
            playing = chosen.actor(context)
            assert playing is not None
            await playing(session)

        return sit
