"""Bugs, each a change of one text in one file of the source; `tests.sim.mutations` looks whether they are found.

A bug has to be what its name says and nothing more: a change after which nothing works would be found by anything. (The
last of them is such a one: a suite in which nothing has to succeed would not find it.)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class PlantingError(Exception):
    """A bug cannot be planted: the source has changed."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One bug.

    Attributes:
        name: what is wrong.
        how: how it comes about.
        file: where, below the package.
        before: a text that is there once.
        after: what stands there instead.
    """

    name: str
    how: str
    file: str
    before: str
    after: str

    def apply(self, package: Path) -> None:
        """Plant the bug into a copy of the package.

        Raises:
            PlantingError: the text is not there once, or what comes out of it is not Python.
        """
        path = package / self.file
        text = path.read_text()
        if text.count(self.before) != 1:
            raise PlantingError(f"{self.name}: {self.file} has {text.count(self.before)} times:\n{self.before}")
        changed = text.replace(self.before, self.after)
        try:
            compile(changed, self.file, "exec")
        except SyntaxError as error:
            raise PlantingError(f"{self.name}: {self.file} would be no Python: {error}") from error
        path.write_text(changed)


MUTATIONS = (
    Mutation(
        "END before all LAST_ACKs",
        "END goes out when one LAST_ACK is still missing",
        "trial/_closing.py",
        "        trial.owing.discard(participant.index)\n        if not trial.owing:",
        "        trial.owing.discard(participant.index)\n        if len(trial.owing) <= 1:",
    ),
    Mutation(
        "a reward delivered twice",
        "what comes with the final observation comes with END once more",
        "trial/_closing.py",
        "            send_rewards(trial, actor)\n        actor.step(StreamInput.SEND_LAST)",
        "            sources = list(actor.rewards)\n"
        "            send_rewards(trial, actor)\n"
        "            actor.rewards = sources\n"
        "        actor.step(StreamInput.SEND_LAST)",
    ),
    Mutation(
        "a sample lost at the flush",
        "the last tick's sample is left out of the flush",
        "trial/_samples.py",
        "        leaving, self._buffer = self._buffer, []",
        "        leaving, self._buffer = self._buffer[:-1], []",
    ),
    Mutation(
        "a timed-out actor counted twice",
        "it is absent once for its time being over and once for having no action",
        "trial/_ticks.py",
        "            (defaults if content is not None else unavailable).append(actor.index)",
        "            absent = defaults if content is not None else unavailable\n"
        "            absent.extend([actor.index] if actor.gone else [actor.index] * 2)",
    ),
    Mutation(
        "a duplicate id answered",
        "the second start of an id gets the id, not an empty reply",
        "servers/orchestrator/_orchestrator.py",
        '        if trial_id in self.trials:\n            return ""',
        "        if trial_id in self.trials:\n            return trial_id",
    ),
    Mutation(
        "a watcher missing one transition",
        "where one input changes the state twice, the first change is not reported",
        "servers/orchestrator/_watch.py",
        "        if self._end is not None or (self._states and change.state not in self._states):",
        "        known = self._end is not None or (self._states and change.state not in self._states)\n"
        "        if known or change.state != change.info().state:",
    ),
    Mutation(
        "a late action given to the next tick",
        "an action of the tick before is taken for this one's",
        "trial/_ticks.py",
        "    elif tick_id != CURRENT_TICK and tick_id != trial.tick_id:\n        trial.ignore(actor",
        "    elif tick_id != CURRENT_TICK and not trial.tick_id - 1 <= tick_id <= trial.tick_id:\n"
        "        trial.ignore(actor",
    ),
    Mutation(
        "an optional actor's loss ending the trial",
        "in the table, it breaks a running trial off",
        "trial/_trial_table.py",
        "    (_P.RUNNING, _I.OPTIONAL_ACTOR_LOST): (_P.RUNNING, _A.GO_ON_WITHOUT),",
        "    (_P.RUNNING, _I.OPTIONAL_ACTOR_LOST): (_P.ENDED, _A.BREAK_OFF),",
    ),
    Mutation(
        "the environment's LAST ignored",
        "in the table, it has no effect",
        "trial/_stream_table.py",
        "    (_S.ACTIVE, _I.LAST): (_S.ENDING, _V.DELIVER),",
        "    (_S.ACTIVE, _I.LAST): (_S.ACTIVE, _V.IGNORE),",
    ),
    Mutation(
        "a hook's failure leaving its trial",
        "a start through hooks that fails leaves its trial known, its id taken",
        "servers/orchestrator/_orchestrator.py",
        "                trial.hard_end(details, EndCause.NOT_STARTED)\n                self.trials.remove(trial)",
        # Hooks are asked when the starter gave no parameters.
        "                trial.hard_end(details, EndCause.NOT_STARTED)\n"
        "                if params is not None:\n"
        "                    self.trials.remove(trial)",
    ),
    Mutation(
        "an ack timer never armed",
        "actors may take indefinitely to acknowledge",
        "trial/_closing.py",
        "        trial.arm(Timer(TimerKind.ACK, actor.index), trial.rules.actor_ack_timeout_seconds)\n",
        "",
    ),
    Mutation(
        "a cancelled trial leaving a task",
        "when the trial is broken off, the stream of one who is not ready yet is not closed, and its task waits on",
        "trial/_stream_table.py",
        "    (_S.CONNECTING, _I.SEND_END): (_S.ENDED, _V.PROCEED),",
        "    (_S.CONNECTING, _I.SEND_END): (_S.ENDED, _V.DROP),",
    ),
    Mutation(
        "every actor shown the same observation",
        "the map of who sees what is not looked at",
        "trial/_ticks.py",
        "[shared[indexes[index]] for index in participants]",
        "[shared[indexes[0]] for index in participants]",
    ),
    Mutation(
        "final rewards lost",
        "what was given for the last tick does not come with the final observation",
        "trial/_closing.py",
        "            send_rewards(trial, actor)\n        actor.step(StreamInput.SEND_LAST)",
        "            actor.rewards = []\n        actor.step(StreamInput.SEND_LAST)",
    ),
    Mutation(
        "a reward to the wrong actor",
        "it goes to the actor after the one that it names",
        "trial/_messages_and_rewards.py",
        "    receivers = trial.addresses.resolve(reward.receiver_name)\n",
        "    receivers = trial.addresses.resolve(reward.receiver_name)\n"
        "    receivers = [(index + 1) % len(trial.actors) for index in receivers]\n",
    ),
    Mutation(
        "a default action ignored",
        "an absent actor is unavailable, though it has a default",
        "trial/_ticks.py",
        "            content = actor.default_action\n",
        "            content = None\n",
    ),
    Mutation(
        "one step beyond the last",
        "the limit of steps is compared with the wrong sign",
        "trial/_ticks.py",
        "0 < trial.max_steps <= trial.tick_id",
        "0 < trial.max_steps < trial.tick_id",
    ),
    Mutation(
        "an idle trial never ended",
        "the timer of inactivity is not armed",
        "trial/_joining.py",
        "    trial.arm(INACTIVITY, params.max_inactivity)\n",
        "",
    ),
    Mutation(
        "no patience with a soft end",
        "its timer is not armed: an environment may take indefinitely to come to its end",
        "trial/_memory.py",
        "            self.arm(PATIENCE, self.rules.soft_end_patience_seconds)\n",
        "            return\n",
    ),
    Mutation(
        "a response timeout forgotten",
        "required actors may take indefinitely to act",
        "trial/_ticks.py",
        "        trial.arm(Timer(_RESPONSE, actor.index), actor.response_timeout)\n",
        "        if not actor.required:\n"
        "            trial.arm(Timer(_RESPONSE, actor.index), actor.response_timeout)\n",
    ),
    Mutation(
        "a message from a false sender",
        "whoever sends it says who has",
        "trial/_messages_and_rewards.py",
        "    message.sender_name = sender.name\n",
        "",
    ),
    Mutation(
        "a HEARTBEAT never sent",
        "its timer is not armed",
        "trial/_joining.py",
        "    trial.arm(Timer(TimerKind.HEARTBEAT, participant.index), trial.rules.heartbeat_seconds)\n",
        "",
    ),
    Mutation(
        "a hook's changes thrown away",
        "the parameters stay as they were before it was asked",
        "servers/orchestrator/_starting.py",
        "        params = reply.params\n",
        "        del reply\n",
    ),
    Mutation(
        "unconfirmed samples not sent again",
        "what a stream that broke had not confirmed is not in the next one",
        "servers/orchestrator/_datalog.py",
        "            self._queue.appendleft(kept if kept.size else self._counted(kept.sample))",
        "            self._bytes.size -= kept.size",
    ),
    Mutation(
        "a watch's filter ignored",
        "everybody is told everything",
        "servers/orchestrator/_watch.py",
        "(self._states and change.state not in self._states)",
        "False",
    ),
    Mutation(
        "only the first watcher told",
        "of each change",
        "servers/orchestrator/_watch.py",
        "        for watch in self._of(trial_id):\n            watch.offer",
        "        for watch in self._of(trial_id)[:1]:\n            watch.offer",
    ),
    Mutation(
        "excluded fields sent",
        "a data log gets what it is not to get",
        "trial/_samples.py",
        "            sample.ClearField(name)",
        "            pass",
    ),
    Mutation(
        "an outbox without limit",
        "a participant that does not read is never given up",
        "servers/orchestrator/_participant_stream.py",
        "            if self._outbox_bytes + size > outboxes.max_bytes or len(self._outbox) >= outboxes.max_messages:",
        "            if self._outbox_bytes < 0:",
    ),
    Mutation(
        "a hard termination that is soft",
        "whatever was asked for",
        "servers/orchestrator/_services.py",
        "            if request.hard_termination:",
        "            if request.hard_termination and trial.state == 0:",
    ),
    Mutation(
        "a sample without actions",
        "they are not written down",
        "trial/_samples.py",
        "        self._actions[index] = action\n\n    def void",
        "        pass\n\n    def void",
    ),
    Mutation(
        "a sample without rewards",
        "they are not written down",
        "trial/_samples.py",
        "            current.rewards.append(reward)\n            return\n        rewards = self._message(-1).rewards\n",
        "            return\n        rewards = DatalogSample().rewards\n",
    ),
    Mutation(
        "an orderly end told as the environment's",
        "whoever asked for it, and where the steps are used up",
        "trial/_closing.py",
        "    if trial.orderly_cause is EndCause.UNKNOWN:\n        trial.orderly_cause",
        "    if trial.orderly_cause is not None:\n        trial.orderly_cause",
    ),
    Mutation(
        "the wrong participant blamed",
        "the outcome names the first actor, whoever was lost",
        "trial/_machine.py",
        "        why = Breakage(cause, details, participant.name, traceback)\n",
        "        why = Breakage(cause, details, self.actors[0].name, traceback)\n",
    ),
    Mutation(
        "the final tick not counted",
        "the outcome has one tick less than there were",
        "trial/_closing.py",
        "    ticks = 0 if trial.latest_observation is None else trial.tick_id + 1 - trial.first_tick\n",
        "    ticks = 0 if trial.latest_observation is None else trial.tick_id - trial.first_tick\n",
    ),
    Mutation(
        "a broken connection told as a failure",
        "a participant whose stream breaks is said to have raised an exception",
        "servers/orchestrator/_participant_stream.py",
        "    cause = _CAUSES.get(error.code, EndCause.PARTICIPANT_FAILED)\n",
        "    cause = EndCause.PARTICIPANT_FAILED\n",
    ),
    Mutation(
        "rewards added up without their weights",
        "a mean of rewards divides their plain sum by the confidence",
        "base/rewards.py",
        "            self._total += value * confidence\n",
        "            self._total += value\n",
    ),
    Mutation(
        "distrusted rewards counted",
        "a confidence below 0 weighs like any other",
        "base/rewards.py",
        "        if confidence > 0:\n",
        "        if confidence:\n",
    ),
    Mutation(
        "the last tick's sample told as running",
        "a sample does not say that its tick was played while the trial came to its end",
        "trial/_ticks.py",
        "Phase.WAIT_FINAL if trial.before is Phase.WAIT_FINAL else Phase.RUNNING",
        "Phase.RUNNING",
    ),
    Mutation(
        "messages kept for the lost",
        "what is said to an actor that was lost waits for it",
        "trial/_messages_and_rewards.py",
        "_TO_COME: Final = (StreamState.IDLE, StreamState.CONNECTING)",
        "_TO_COME: Final = (StreamState.IDLE, StreamState.CONNECTING, StreamState.LOST)",
    ),
    Mutation(
        "a class without its first member",
        "a message or reward to everybody of a class passes over the first of them",
        "base/addressing.py",
        "return members if name == EVERYBODY else",
        "return members[1:] if name == EVERYBODY else",
    ),
    Mutation(
        "a late reward sent alone",
        "one for the oldest tick that is held back finds no sample",
        "trial/_samples.py",
        "        if reward.tick_id >= first:\n",
        "        if reward.tick_id > first:\n",
    ),
    Mutation(
        "defaults not written down",
        "a sample does not say whose action was made up",
        "trial/_samples.py",
        "        message.default_actors.extend(defaults)\n",
        "",
    ),
    Mutation(
        "the first sample stamped too early",
        "its time is that of the parameters, not of the first observation",
        "trial/_samples.py",
        "            current.timestamp = wall_ns\n            current.observations = observations\n"
        "            return\n        message = self._message(-1)\n        message.info.timestamp = wall_ns\n",
        "            current.observations = observations\n            return\n        message = self._message(-1)\n",
    ),
    Mutation(
        "an outbox that stays full",
        "what it has sent is counted on",
        "servers/orchestrator/_participant_stream.py",
        "                        self._outbox_bytes -= message.ByteSize()\n",
        "",
    ),
    Mutation(
        "a room not given back",
        "the bytes of a trial that is over stay counted",
        "servers/orchestrator/_room.py",
        "            room.bytes.count(self.account, -self.size)\n",
        "",
    ),
    Mutation(
        "a watch that fills up",
        "what it has been told stays counted",
        "servers/orchestrator/_watch.py",
        "        self.size -= entry.size\n",
        "",
    ),
    Mutation(
        "an unconfirmed sample forgotten early",
        "the answer to the parameters is taken for that to a sample",
        "servers/orchestrator/_remote_sink.py",
        "max(0, self._replies - 1)",
        "self._replies",
    ),
    Mutation(
        "a queue in process that fills up",
        "the size of a message that was taken stays counted",
        "rpc/_in_process_queue.py",
        "            self._bytes -= self._sizes.popleft()\n",
        "            self._sizes.popleft()\n",
    ),
    Mutation(
        "outboxes of calls that are over",
        "what a call had to send when it ended stays counted",
        "rpc/_send_queue.py",
        "            self._queued -= stream.outbox_bytes\n",
        "",
    ),
    Mutation(
        "no trial can start",
        "whatever its parameters",
        "servers/orchestrator/_orchestrator.py",
        "            params = validate_params(params)\n",
        "            params = validate_params(params)\n            raise UnavailableError('no')\n",
    ),
)


@dataclass(frozen=True, slots=True)
class BugForTests:
    """A bug that tests find which mirror the source, or play a service's clients beside a model.

    Attributes:
        bug: as above.
        tests: files or tests below `tests/`, in which something must fail.
    """

    bug: Mutation
    tests: tuple[str, ...]


#: What simulated trials do not reach, or not within a few hundred seeds.
TESTED = (
    BugForTests(
        Mutation(
            "padding that stays counted",
            "the padding of DATA counts among what a stream holds, though nobody will take it",
            "rpc/_frame_parser.py",
            "stream.held += size - padding",
            "stream.held += size",
        ),
        ("rpc/test__frame_parser.py", "rpc/test_limits.py"),
    ),
    BugForTests(
        Mutation(
            "a refused upload that stays counted",
            "the memory of a version that was not taken is not given back",
            "servers/model_registry/_transfers.py",
            "        self._memory.give_back(self._taken)\n",
            "",
        ),
        ("servers/model_registry/test_transfers.py",),
    ),
    BugForTests(
        Mutation(
            "a channel that stays in use after an exception",
            "its user is counted on when what it did with it has failed",
            "rpc/_shared_channels.py",
            "        finally:\n            shared.users.value -= 1\n",
            "        except BaseException:\n            raise\n        else:\n            shared.users.value -= 1\n",
        ),
        ("rpc/test__shared_channels.py",),
    ),
    BugForTests(
        Mutation(
            "a busy connection taken for idle",
            "one that was idle once is closed when its time is over, whoever uses it now",
            "rpc/_pool.py",
            "if not connection.engine.streams and connection in",
            "if connection in",
        ),
        ("rpc/test__pool.py", "rpc/test_channel.py"),
    ),
    BugForTests(
        Mutation(
            "a participant read during back-pressure",
            "who comes while a trial's data log is behind is read nevertheless",
            "servers/orchestrator/_participant_stream.py",
            "        if self._paused:\n            call.pause()\n",
            "",
        ),
        ("servers/orchestrator/test_participant_stream.py",),
    ),
    BugForTests(
        Mutation(
            "a commit not synced at `full`",
            "SQLite leaves it to the next checkpoint",
            "base/sqlite_file.py",
            "'FULL' if full else 'NORMAL'",
            "'NORMAL' if full else 'NORMAL'",
        ),
        ("servers/datastore/test_power.py",),
    ),
    BugForTests(
        Mutation(
            "cached versions of a deleted model",
            "they keep their room in the cache",
            "servers/model_registry/_model_registry.py",
            "        for version in model.transients.values():\n            self._cache.remove(version)\n",
            "",
        ),
        ("servers/model_registry/test_transfers.py",),
    ),
    BugForTests(
        Mutation(
            "a HEARTBEAT sent once only",
            "its timer is not armed again",
            "trial/_heartbeats.py",
            "    trial.arm_at(Timer(TimerKind.HEARTBEAT, participant.index), deadline)\n",
            "",
        ),
        ("account/test_plays.py::test_some_plays",),
    ),
    BugForTests(
        Mutation(
            "samples confirmed before they are stored",
            "who adds them by hand is answered at once",
            "servers/datastore/_trial_service.py",
            "                await stream.flush()\n                raise\n        await stream.flush()\n",
            "                await stream.flush()\n                raise\n",
        ),
        ("servers/datastore/test_trial_service.py", "servers/datastore/test_faults.py"),
    ),
    BugForTests(
        Mutation(
            "a page that forgets who came last",
            "its handle leads back behind the last trial, if that was the only one",
            "servers/datastore/_trial_service.py",
            "        reply.next_trial_handle = str(last)\n",
            "        reply.next_trial_handle = str(last if len(reply.trial_infos) > 1 else after)\n",
        ),
        ("models/test_runs.py::test_some_seeds",),
    ),
    BugForTests(
        Mutation(
            "a number given twice",
            "a version that is not archived leaves its number to the next one after a start",
            "servers/model_registry/_model_registry.py",
            "        await self.blocking(doing, self._archive.keep_last, model.folder, info.version_number)\n",
            "",
        ),
        ("servers/model_registry/test_reference_cases.py", "models/test_runs.py::test_some_seeds"),
    ),
    BugForTests(
        Mutation(
            "a registration in force before it is written",
            "what could not be written is shown, and refused nevertheless",
            "servers/directory/_changes.py",
            "                    problem = await self._write(draft)\n                    if problem is None:\n",
            "                    problem = await self._write(draft)\n                    if problem is None or True:\n",
        ),
        ("servers/directory/test_changes.py",),
    ),
    BugForTests(
        Mutation(
            "a credit withheld after a reset",
            "what a stream held that is over is not credited to its connection",
            "rpc/_receive_window.py",
            "            self._release(stream)\n        if self.withheld:\n            self.credit_connection()\n"
            "        elif self.loan.size:\n            self.settle()\n\n    # --- streams",
            "            self._release(stream)\n        if self.loan.size:\n            self.settle()\n\n"
            "    # --- streams",
        ),
        ("rpc/test__receive_window.py",),
    ),
    BugForTests(
        Mutation(
            "END of a slow reader cut off",
            "a client that has not read everything when its trial ends is not waited for",
            "servers/orchestrator/_participant_stream.py",
            "        with trio.move_on_after(farewell_seconds) as patience:\n",
            "        with trio.move_on_after(0) as patience:\n",
        ),
        ("servers/orchestrator/test_participant_stream.py",),
    ),
    BugForTests(
        Mutation(
            "END of a slow service cut off",
            "the stream to a service is reset while END is in its outbox",
            "servers/orchestrator/_participant_stream.py",
            "            elif self._emptying or not self._ended:\n",
            "            elif not self._emptying and not self._ended:\n",
        ),
        ("servers/orchestrator/test_participant_stream.py",),
    ),
    BugForTests(
        Mutation(
            "cached samples of a deleted trial",
            "who watches it reads them still",
            "servers/datastore/_sqlite.py",
            "            self._recent.forget(deleted)\n",
            "",
        ),
        ("servers/datastore/test_recent_samples.py",),
    ),
    BugForTests(
        Mutation(
            "a cached head of a deleted trial",
            "one that is added again under the same id goes on with the ticks of the first",
            "servers/datastore/_sqlite_writer.py",
            "                    self._known.pop(trial_id, None)\n",
            "",
        ),
        ("servers/datastore/test_recent_samples.py",),
    ),
    BugForTests(
        Mutation(
            "the end told before the last samples",
            "a follower sees it in a transaction whose samples it is not given yet",
            "servers/datastore/_sqlite.py",
            "            return self._recent.as_noted(found[0], keep=keep)\n",
            "            return found[0]\n",
        ),
        ("servers/datastore/test_recent_samples.py",),
    ),
)
