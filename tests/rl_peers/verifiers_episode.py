"""Episodes of verifiers with agents whose model is scripted: it is a server of OpenAI's interface on loopback.

As a program it reads what is to be played from stdin, as JSON, and writes the traces: verifiers 0.4 and OpenEnv 0.10
cannot be in one environment, because they need different versions of mcp.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PLUGINS = Path(__file__).parent / "verifiers_plugins"


@contextmanager
def scripted_model(replies: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Serve a model; the address is what verifiers takes as `base_url`.

    Args:
        replies: by agent. Whose turn it is, and which, is read from the request.
    """

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            messages = request["messages"]
            (agent,) = (agent for agent in replies if f"You are {agent} in " in messages[0]["content"])
            said = replies[agent][sum(message["role"] == "assistant" for message in messages)]
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            about = {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"]}
            body = json.dumps({**about, "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def play(
    game: str, store: str, replies: Mapping[str, Sequence[str]], seeds: Sequence[int], **agent: Any
) -> list[dict[str, Any]]:
    """Play episodes at the same time; return them as verifiers writes them into its files.

    Args:
        game: its id.
        store: keeps the trials.
        replies: by agent.
        seeds: of the episodes.
        agent: what else is configured for each agent.
    """
    import verifiers.v1 as vf
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    if str(PLUGINS) not in sys.path:
        sys.path.insert(0, str(PLUGINS))
    sys.modules.pop("scripted_game", None)  # it reads the variables anew
    os.environ |= {"SCRIPTED_GAME": game, "SCRIPTED_STORE": store, "SCRIPTED_KEY": "none"}
    seat = {"harness": {"id": "scripted_harness"}, **agent}
    env = load_environment(resolve_env_config({"taskset": {"id": "scripted_game"}, **dict.fromkeys(replies, seat)}))

    async def main(url: str) -> list[Any]:
        context = vf.ModelContext(
            model="scripted", client=vf.EvalClientConfig(base_url=url, api_key_var="SCRIPTED_KEY")
        )
        chosen = [task for task in env.taskset.take(max(seeds) + 1) if task.data.seed in seeds]
        async with env.serving():
            return await asyncio.gather(*(env.run_episode(task, context) for task in chosen))

    with scripted_model(replies) as url:
        return [episode.to_record() for episode in asyncio.run(main(url))]


if __name__ == "__main__":
    json.dump(play(**json.load(sys.stdin)), sys.stdout)
