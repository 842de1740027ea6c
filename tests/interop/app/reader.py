"""A reader of the trial datastore: `python reader.py --records FOLDER --name NAME [--datastore URL]`.

It takes orders, see orders.py. Without a URL the datastore is discovered.
"""

import argparse
import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import cog_settings
import cogment
from connecting import add_options, connecting, endpoint
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import MessageToDict
from orders import Servant, serve_orders
from parameters import describe
from recording import text_of


def told_trial(info: Any) -> dict[str, Any]:
    return {
        "trial": info.trial_id,
        "state": info.trial_state.name,
        "user": info.user_id,
        "samples": info.sample_count,
        "parameters": describe(info.parameters),
    }


def told_sample(sample: Any) -> dict[str, Any]:
    return {
        "trial": sample.trial_id,
        "state": sample.trial_state.name,
        "tick": sample.tick_id,
        "timestamp": sample.timestamp,
        "actors": {name: _data(data) for name, data in sample.actors_data.items()},
    }


def _data(data: Any) -> dict[str, Any]:
    found = {
        "observation": _fields(data.observation),
        "action": _fields(data.action),
        "reward": data.reward,
        "received_rewards": [_reward(reward) for reward in data.all_received_rewards()],
        "sent_rewards": [_reward(reward) for reward in data.all_sent_rewards()],
        "received_messages": [_message(message) for message in data.all_received_messages()],
        "sent_messages": [_message(message) for message in data.all_sent_messages()],
    }
    # What there is none of is left out.
    return {name: value for name, value in found.items() if value not in (None, [], 0.0)}


def _fields(message: Any) -> Any:
    return None if message is None else MessageToDict(message)


def _reward(reward: Any) -> dict[str, Any]:
    data = reward.user_data
    return {
        "sender": reward.sender,
        "receiver": reward.receiver,
        "value": reward.value,
        "confidence": reward.confidence,
        "note": None if data is None else text_of(data),
    }


def _message(message: Any) -> dict[str, Any]:
    try:
        payload = message.payload
    except ValueError:
        # It asks whether a field is there that cannot be absent, and so never gets to what it would do then.
        payload = AnyMessage.FromString(message._payloads[message._raw_message.payload])
    return {"sender": message.sender, "receiver": message.receiver, "text": text_of(payload)}


class Reader(Servant):
    """Lists, reads and deletes trials."""

    def __init__(self, datastore: Any) -> None:
        super().__init__()
        self._datastore = datastore

    async def trials(self, **arguments: Any) -> Any:
        return [told_trial(info) async for info in self._datastore.all_trials(**arguments)]

    async def get(self, **arguments: Any) -> Any:
        return [told_trial(info) for info in await self._datastore.get_trials(**arguments)]

    async def delete(self, trials: list[str]) -> None:
        await self._datastore.delete_trials(trials)

    async def samples(self, trials: list[str], **selection: Any) -> Any:
        return [sample async for sample in self._samples(await self._datastore.get_trials(trials), **selection)]

    async def follow(self, trial: str) -> None:
        """Read in the background; see `followed`."""
        self._follow(trial, self._samples(await self._datastore.get_trials([trial])))

    async def _samples(self, infos: Any, fields: Any = (), **selection: Any) -> AsyncIterator[Any]:
        wanted = [cogment.DatastoreFields[name] for name in fields]
        async for sample in self._datastore.all_samples(infos, fields=wanted, **selection):
            yield told_sample(sample)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--datastore")
    add_options(parser)
    args = parser.parse_args()

    context = cogment.Context(user_id=args.name, cog_settings=cog_settings, **connecting(args))
    datastore = await context.get_datastore(endpoint(args, *([args.datastore] if args.datastore else [])))
    await serve_orders(Reader(datastore), args.records, args.name)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
