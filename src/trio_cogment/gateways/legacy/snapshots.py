"""The observation sets of an old environment, unpacked: for each actor its whole observation."""

from __future__ import annotations

from collections.abc import Mapping

from trio_cogment.api.legacy.environment_pb2 import ObservationSet
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.gateways.legacy.actor_ids import ActorIds
from trio_cogment.gateways.legacy.deltas import ApplyDelta


class Snapshots:
    """The last observation of each actor of a trial, to which deltas are applied.

    Deltas are applied for each actor and not for each entry of a set: two actors may share one delta, with different
    observations before it.

    Args:
        ids: of the trial.
        deltas: how deltas are applied, by class.
    """

    def __init__(self, ids: ActorIds, deltas: Mapping[str, ApplyDelta]) -> None:
        self._ids = ids
        self._deltas = deltas
        self._last: list[bytes | None] = [None] * len(ids)

    def take(self, observation_set: ObservationSet) -> list[bytes]:
        """Return the observations of a set, in the order of the ids.

        A set that is wrong changes nothing.

        Raises:
            RemoteProtocolError: the set does not fit the trial, or a delta cannot be applied.
        """
        entries, places = observation_set.observations, observation_set.actors_map
        if len(places) != len(self._ids):
            raise RemoteProtocolError(
                f"actors_map: expected one entry for each of {len(self._ids)} actors, got {len(places)}"
            )
        made: dict[tuple[int, str, bytes | None], bytes] = {}
        found: list[bytes] = []
        for member, place in zip(self._ids.members, places, strict=True):
            if not 0 <= place < len(entries):
                raise RemoteProtocolError(
                    f"actors_map[{member.actor_id}]: expected the index of one of {len(entries)} observations, got "
                    f"{place}"
                )
            entry, before = entries[place], self._last[member.actor_id]
            if entry.snapshot:
                found.append(entry.content)
                continue
            key = place, member.actor_class, before
            if key not in made:
                made[key] = self._applied(member.actor_class, before, entry.content)
            found.append(made[key])
        self._last[:] = found
        return found

    def _applied(self, actor_class: str, before: bytes | None, delta: bytes) -> bytes:
        apply = self._deltas.get(actor_class)
        if apply is None:
            raise RemoteProtocolError(
                f"a delta for an actor of class {actor_class!r}: expected a whole observation, since the profile does "
                "not say how deltas of this class are applied"
            )
        try:
            return apply(before, delta)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"a delta for an actor of class {actor_class!r}: {error}") from error
