"""A proxy as the published trainer has one: it starts a worker, and publishes what that writes to standard output.

`proxy.py --target ADDRESS --run-id ID --agent-id A [--worker-id W] -- WORKER...`. It waits for credits, and stops
sending while the run is paused.
"""

import argparse
import json
import queue
import subprocess
import sys
import threading

import grpc
from stubs import connect, pb


class Gate:
    """Credits, and a pause, as the control stream tells of them."""

    def __init__(self, stub, run_id, token):
        self._changed = threading.Condition()
        self._credits = 0
        self._paused = False
        self.events = queue.Queue()
        self._stream = stub.ControlStream(iter(self.events.get, None), metadata=[("session-token", token)])
        self._run_id = run_id
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        try:
            for event in self._stream:
                with self._changed:
                    kind = event.WhichOneof("event")
                    if kind == "grant_steps":
                        self._credits += event.grant_steps
                    elif kind in ("pause", "resume"):
                        self._paused = kind == "pause"
                        self.events.put(pb.ControlEvent(run_id=self._run_id, **{kind: True}))
                    self._changed.notify_all()
        except grpc.RpcError:
            pass  # the run has ended

    def take(self):
        """Wait for a credit, and use it."""
        with self._changed:
            while self._paused or not self._credits:
                self._changed.wait()
            self._credits -= 1

    def close(self):
        self.events.put(None)


class Publication:
    """One stream of steps or episodes, in a thread of its own."""

    def __init__(self, method, gate, token):
        self._lines = queue.Queue(2048)
        self._gate = gate
        self._count = 0
        self._thread = threading.Thread(target=self._run, args=(method, [("session-token", token)]))
        self._thread.start()

    def put(self, message):
        self._count += 1
        message.seq_id = self._count
        self._lines.put(message)

    def finish(self):
        self._lines.put(None)
        self._thread.join()

    def _messages(self):
        for message in iter(self._lines.get, None):
            self._gate.take()
            yield message

    def _run(self, method, metadata):
        reply = method(self._messages(), metadata=metadata)
        assert reply.accepted == self._count, reply


def step(line, options):
    return pb.RunStep(
        run_id=options.run_id,
        worker_id=options.worker_id,
        agent_id=line.get("agent_id", options.agent_id),
        episode_index=line.get("episode", 0),
        step_index=line["step"],
        action_json=json.dumps(line["action"]),
        reward=line["reward"],
    )


def episode(line, options):
    return pb.RunEpisode(
        run_id=options.run_id,
        worker_id=options.worker_id,
        agent_id=options.agent_id,
        episode_index=line["episode"],
        total_reward=line["total_reward"],
        steps=line["steps"],
    )


def main():
    parser = argparse.ArgumentParser()
    for name in ("--target", "--run-id", "--agent-id", "--worker-id"):
        parser.add_argument(name, default="")
    parser.add_argument("worker", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    worker = subprocess.Popen(options.worker[1:], stdout=subprocess.PIPE, text=True)
    channel, stub = connect(options.target)
    try:
        registered = stub.RegisterWorker(
            pb.RegisterWorkerRequest(
                run_id=options.run_id,
                worker_id=options.worker_id,
                worker_kind="telemetry_proxy",
                proto_version="MOSAIC/1.0",
                schema_id="jsonl.telemetry",
                schema_version=1,
                supports_pause=True,
            )
        )
    except grpc.RpcError:
        worker.terminate()
        raise
    gate = Gate(stub, options.run_id, registered.session_token)
    steps = Publication(stub.PublishRunSteps, gate, registered.session_token)
    episodes = Publication(stub.PublishRunEpisodes, gate, registered.session_token)
    for text in worker.stdout:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if line.get("type") == "step":
            steps.put(step(line, options))
        elif line.get("type") == "episode":
            episodes.put(episode(line, options))
    steps.finish()
    episodes.finish()
    stub.Heartbeat(pb.HeartbeatRequest(run_id=options.run_id))
    gate.close()
    channel.close()
    return worker.wait()


if __name__ == "__main__":
    sys.exit(main())
