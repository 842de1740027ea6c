"""The published library's compliance tests, and those of dm_env: `compliance.py PORT OPTIONS FILE`.

OPTIONS is a JSON object; its values are the settings that a server needs, and those that it has to refuse:
`create`, `invalid_create`, `join`, `invalid_join`, `reset`, `reset_world`. The file gets `passed`, a list of names, and
`failed`, an object from names to tracebacks.
"""

import json
import sys
import unittest
from pathlib import Path

import dm_env
import grpc
from absl.testing import absltest
from dm_env import test_utils
from dm_env_rpc.v1 import connection, dm_env_adaptor, dm_env_rpc_pb2, tensor_utils
from dm_env_rpc.v1.compliance import create_destroy_world, join_leave_world, reset, reset_world, step

PORT = sys.argv[1]
OPTIONS = json.loads(sys.argv[2])
#: Enough for several sequences, of which none is begun by a reset.
STEPS = 40


def settings(name):
    return {key: tensor_utils.pack_tensor(value) for key, value in OPTIONS.get(name, {}).items()}


class Connected:
    """A test with a connection of its own, and maybe a world."""

    #: The connection has created a world, and has joined it.
    creates = joins = False
    _connection = None
    _world = None

    def setUp(self):
        super().setUp()
        self._channel = grpc.insecure_channel(f"127.0.0.1:{PORT}")
        self._connection = connection.Connection(self._channel)
        if self.creates or self.joins:
            request = dm_env_rpc_pb2.CreateWorldRequest(settings=settings("create"))
            self._world = self._connection.send(request).world_name
        if self.joins:
            self._specs = self._join()

    def tearDown(self):
        try:
            super().tearDown()
            if self._world is not None:
                self._connection.send(dm_env_rpc_pb2.LeaveWorldRequest())
                self._connection.send(dm_env_rpc_pb2.DestroyWorldRequest(world_name=self._world))
        finally:
            self._connection.close()
            self._channel.close()

    def _join(self):
        request = dm_env_rpc_pb2.JoinWorldRequest(world_name=self._world, settings=settings("join"))
        return self._connection.send(request).specs


# The properties stand in each class itself: they are abstract in the library's.


class CreateDestroyWorld(Connected, create_destroy_world.CreateDestroyWorld):
    connection = property(lambda self: self._connection)
    required_world_settings = property(lambda self: settings("create"))
    invalid_world_settings = property(lambda self: settings("invalid_create"))
    has_multiple_world_support = True


class JoinLeaveWorld(Connected, join_leave_world.JoinLeaveWorld):
    creates = True
    connection = property(lambda self: self._connection)
    world_name = property(lambda self: self._world)
    required_join_settings = property(lambda self: settings("join"))
    invalid_join_settings = property(lambda self: settings("invalid_join"))


class Reset(Connected, reset.Reset):
    creates = True
    connection = property(lambda self: self._connection)
    required_reset_settings = property(lambda self: settings("reset"))

    def join_world(self):
        return self._join()


class ResetWorld(Connected, reset_world.ResetWorld):
    creates = True
    connection = property(lambda self: self._connection)
    world_name = property(lambda self: self._world)
    required_join_world_settings = property(lambda self: settings("join"))
    required_reset_world_settings = property(lambda self: settings("reset_world"))


class Step(Connected, step.Step):
    joins = True
    connection = property(lambda self: self._connection)
    specs = property(lambda self: self._specs)


class AdaptedEnvironment(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """The world as an environment of dm_env."""

    def make_object_under_test(self):
        self._channel = grpc.insecure_channel(f"127.0.0.1:{PORT}")
        self._connection = connection.Connection(self._channel)
        create, join = OPTIONS.get("create", {}), OPTIONS.get("join", {})
        made, self._world = dm_env_adaptor.create_and_join_world(self._connection, create, join)
        return made

    def make_action_sequence(self):
        return (self.make_action() for _ in range(STEPS))

    def test_sequences_end(self):
        kinds = {self.step_environment(action).step_type for action in self.make_action_sequence()}
        assert kinds == set(dm_env.StepType), kinds

    def tearDown(self):
        super().tearDown()
        self._connection.send(dm_env_rpc_pb2.DestroyWorldRequest(world_name=self._world))
        self._connection.close()
        self._channel.close()


CASES = (CreateDestroyWorld, JoinLeaveWorld, Reset, ResetWorld, Step, AdaptedEnvironment)


def main(file):
    names, failed = [], {}
    for case in CASES:
        for name in unittest.defaultTestLoader.getTestCaseNames(case):
            result = unittest.TestResult()
            case(name).run(result)
            names.append(f"{case.__name__}.{name}")
            if not result.testsRun or result.skipped:
                failed[names[-1]] = "it did not run"
            elif not result.wasSuccessful():
                failed[names[-1]] = "\n".join(text for _, text in (*result.errors, *result.failures))
    found = {"passed": [name for name in names if name not in failed], "failed": failed}
    file.with_suffix(".new").write_text(json.dumps(found, indent=1))
    file.with_suffix(".new").rename(file)


if __name__ == "__main__":
    main(Path(sys.argv[3]))
