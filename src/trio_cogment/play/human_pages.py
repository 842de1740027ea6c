"""The pages of `human` seats: links that lead people to the seat of one trial after the other."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from trio_cogment.api.common_pb2 import ActorParams, TrialParams, TrialState
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.platform import Platform
from trio_cogment.seats.base import SeatContext
from trio_cogment.seats.remote import HumanSeat
from trio_cogment.spaces import encode_action

if TYPE_CHECKING:
    from trio_cogment.access import Keys
    from trio_cogment.play.bots import BotFor
    from trio_cogment.play.games import Game
    from trio_cogment.play.lobby import Place
    from trio_cogment.play.server import PlayServer
    from trio_cogment.web import PageAccess, WebSide

_LINK_SECONDS = 7 * 86400.0
_KEY_BYTES = 32
#: The name of who plays for a person that is away.
_ABSENT = "absent"
#: How many trials whose seats were taken are remembered.
_REMEMBERED_SEATS = 1024


class Doors:
    """The pages of the seats that share a port.

    Args:
        server: holds the seats.
        access: makes the links.
        seats: those with a page, by the names of their games.

    Attributes:
        side: what the port has for browsers.
    """

    def __init__(self, server: PlayServer, access: PageAccess, seats: dict[str, HumanSeat]) -> None:
        from trio_cogment.play.routes import play_routes
        from trio_cogment.web import WebSide

        self.side: WebSide = WebSide(routes=partial(play_routes, server, access), access=access)
        self._access = access
        self._seats = seats

    def tell(self, address: str) -> None:
        """Tell the seats the links of their pages.

        Args:
            address: of the server, without a path.
        """
        from trio_cogment.play.routes import lobby_link

        for name, seat in self._seats.items():
            if seat.page is not None:
                seat.page(f"{address}{lobby_link(self._access, _LINK_SECONDS, name)}")


class _Door:
    """Leads to the seat of whichever trial waits for it."""

    def __init__(self, platform: Platform, server: PlayServer, seat: HumanSeat, bot: BotFor | None = None) -> None:
        self._bot = bot
        self._controller = platform.controller
        self._server = server
        self._seat = seat
        self._taken: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED_SEATS)

    async def start(self, game: Game, _people: int, _bots: bool) -> tuple[list[Place], Callable[[], Awaitable[None]]]:
        """Wait for a trial that waits for the person, and take the seat; see `play.lobby.Start`."""
        from trio_cogment.play.lobby import Place
        from trio_cogment.play.seat_parts import SeatSettings

        trial_id, actor, others, environment = await self._waiting()
        self._taken.append((trial_id, actor))
        default = self._seat.default
        settings = SeatSettings(
            rules=game.seat,
            default=None if default is None else encode_action(default),
            bot=self._bot,
            title=game.title,
            receivers=[*others, environment or "env"],
            again=True,
        )
        link = self._server.take(trial_id, actor, RL_SPEC.actor_class(PLAYER), settings)

        async def over() -> None:
            await self._controller.wait_trial_state(trial_id)

        return [Place(link)], over

    async def _waiting(self) -> tuple[str, str, list[str], str]:
        """Return a trial that waits, the actor, the names of the others, and that of the environment."""
        while True:
            # A new watch each time: it tells the trials of the moment first.
            async with self._controller.watch_trials([TrialState.INITIALIZING, TrialState.PENDING]) as watch:
                async for entry in watch:
                    for info in await self._controller.trial_infos([entry.trial_id], actors=True):
                        names = [actor.name for actor in info.actors_in_trial]
                        for name in names:
                            if name in self._seat.agents and (entry.trial_id, name) not in self._taken:
                                others = [other for other in names if other != name]
                                return entry.trial_id, name, others, info.env_name
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def page_doors(platform: Platform, seats: Sequence[HumanSeat]) -> AsyncIterator[Doors | None]:
    """Have the pages of seats open for the time of an `async with` block; None: none has a page.

    Args:
        platform: has the trials.
        seats: that share a port.

    Raises:
        InvalidArgumentError: their secrets are not the same file, or it has no keys.
        FailedPreconditionError: it cannot be read or made, or others than its owner can read it.
    """
    with_page = [seat for seat in seats if seat.page is not None]
    if not with_page:
        yield None
        return
    from trio_cogment.play.server import open_play
    from trio_cogment.web import PageAccess

    files = sorted({seat.secret_file for seat in with_page})
    if len(files) > 1:
        got = ", ".join(map(repr, files))
        raise InvalidArgumentError(f"secret_file: expected one for the seats on port {with_page[0].port}; got {got}")
    host = platform.participants.host
    keys = await host.runner(1)(_keys, files[0], host.secret_bytes(_KEY_BYTES)) if files[0] else None
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_play(platform))
        named = {f"seat-{number}": seat for number, seat in enumerate(with_page, 1)}
        for name, seat in named.items():
            bot = await stack.enter_async_context(_absent(platform, seat))
            await server.open_lobby(_game(name, seat), _Door(platform, server, seat, bot).start)
        yield Doors(server, PageAccess(keys=keys), named)


def _keys(path: str, new: bytes) -> Keys:
    """Return the keys of a secret file, which is made with a new one if it is not there; it blocks."""
    from trio_cogment.access import Keys
    from trio_cogment.base.host.beside import create_durably

    try:
        with suppress(FileExistsError):
            create_durably(path, f"{new.hex()}\n".encode())
        with open(path, encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise FailedPreconditionError(
                    f"secret_file: {path}: others than its owner can read it; chmod 600 {path}"
                )
            return Keys.parse(file.read())
    except (OSError, UnicodeError) as error:
        raise FailedPreconditionError(f"secret_file: {path}: {error}") from error
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"secret_file: {path}: {error}") from error


@asynccontextmanager
async def _absent(platform: Platform, seat: HumanSeat) -> AsyncIterator[BotFor | None]:
    """Have who plays for a person that is away be there for the time of the block; None: nobody does."""
    if seat.absent is None:
        yield None
        return
    from trio_cogment.play.server import bot_of
    from trio_cogment.rpc import open_in_process
    from trio_cogment.sdk import Participants

    bots = Participants(RL_SPEC, host=platform.participants.host)
    actor = seat.absent.actor(SeatContext(f"the seat of {seat.name or 'a person'}", _ABSENT))
    assert actor is not None, "a seat of this process has an implementation"
    bots.register_actor(actor, _ABSENT, [PLAYER])
    async with open_in_process(bots.host, bots.services()) as channel:
        yield partial(bot_of, channel, _ABSENT)


def _game(name: str, seat: HumanSeat) -> Game:
    from trio_cogment.play.games import Game
    from trio_cogment.seats.presence import Outcome, SeatRules

    outcome = Outcome.LOSS if seat.default is None or seat.optional else Outcome.DEFAULT
    if seat.absent is not None:
        outcome = Outcome.BOT
    who = ActorParams(name=seat.name or "person", actor_class=PLAYER, endpoint=CLIENT)
    if outcome is Outcome.DEFAULT:
        who.default_action.content = encode_action(seat.default).SerializeToString()
    return Game(
        name=name,
        params=TrialParams(actors=[who]),
        seat=SeatRules(grace_seconds=seat.grace_seconds, outcome=outcome),
        bot="" if seat.absent is None else _ABSENT,
        title=seat.name or "Play",
        again=True,
    )
