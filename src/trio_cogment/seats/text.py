"""A seat of a language model: `text`, whose observations and actions are text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.seats.base import SeatContext, SeatError
from trio_cogment.seats.local import Answer, LocalSeat
from trio_cogment.seats.rendering import read_action, turn_prompt
from trio_cogment.spaces import Observation, SpaceError

#: A function of the prompt that returns the answer.
Ask: TypeAlias = Callable[[str], Awaitable[str]]
#: How much of an answer that was refused is sent back, in characters.
_MAX_QUOTED = 1000


class TextSeat(LocalSeat):
    """A language model; made by `text`."""

    label = "text"

    def __init__(
        self,
        ask: Ask | Callable[[], Ask],
        retries: int,
        describe: Callable[[Observation], str] | None,
        **options: Any,
    ) -> None:
        """Keep what is asked.

        Raises:
            InvalidArgumentError: it cannot be called, or the number of retries is negative.
        """
        super().__init__(**options)
        if not callable(ask):
            raise InvalidArgumentError(f"ask: expected an async function of the prompt, got {ask!r}")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise InvalidArgumentError(f"retries: expected a number that is not negative, got {retries!r}")
        self._ask = ask
        self._retries = retries
        self._describe = describe

    async def begin(self, context: SeatContext) -> Answer:
        """Return what answers in a new trial; see `LocalSeat.begin`."""
        ask: Any = self._ask() if isinstance(self._ask, type) else self._ask

        async def answer(observation: Observation) -> Any:
            return await self._action(context, ask, observation)

        return answer

    async def _action(self, context: SeatContext, ask: Ask, observation: Observation) -> Any:
        space, refused, reason = observation.action_space, "", ""
        assert space is not None
        for _ in range(1 + self._retries):
            try:
                prompt = turn_prompt(
                    context.environment, context.agent, observation, refused, reason, describe=self._describe
                )
            except SpaceError as error:
                raise SeatError(context.environment, context.agent, error.of("action_space")) from None
            answer: Any = await ask(prompt)
            if not isinstance(answer, str):
                text = f"text: expected an answer of type str, got {type(answer).__name__}"
                raise SeatError(context.environment, context.agent, text)
            try:
                return read_action(space, answer, observation.action_mask)
            except SpaceError as error:
                refused, reason = answer[:_MAX_QUOTED], str(error)
        if self.default is not None:
            return self.default
        text = f"text: no action in {1 + self._retries} answers; the last was {refused!r}: {reason}"
        raise SeatError(context.environment, context.agent, text)


def text(
    ask: Ask | Callable[[], Ask],
    *,
    retries: int = 2,
    describe: Callable[[Observation], str] | None = None,
    optional: bool = False,
    default: Any = None,
    response_timeout_seconds: float = 0.0,
) -> TextSeat:
    """Return a seat that a language model takes: it is asked with text, and answers with text.

    Each prompt stands by itself; it says who the model plays, what it observes, what the reward for the last step was,
    what an action is, and which ones are allowed now:

        You are player_1 in rps_v2.

        Observation:
        3

        Your action is a whole number from 0 to 2.

        Answer with the action alone, as JSON.

    An answer may have words around the action (see `read_action`). If it has none, or one that is not allowed, the
    model is asked again, and told why: "Your last answer was refused: action: expected 0 to 2, got 7".

    Args:
        ask: an async function of the prompt that returns the answer. If it is a class, each trial has an object of its
            own, made without arguments, which can remember the conversation.
        retries: how often it is asked again for one action.
        describe: returns what stands below "Observation:"; by default the observation's value as JSON, in which arrays
            of more than 1,000 elements are replaced by their shape.
        optional: the trial goes on without it, when it has failed.
        default: the action that is taken then, and when none of its answers was an action. Without one, that is a
            failure, and ends the trial.
        response_timeout_seconds: how long all answers for one action may take together; 0: no limit.

    Raises:
        InvalidArgumentError: `ask` cannot be called, `retries` is negative, or the seat is optional and has no default
            action.
    """
    return TextSeat(
        ask,
        retries,
        describe,
        optional=optional,
        default=default,
        response_timeout_seconds=response_timeout_seconds,
    )
