"""A game as a plugin of verifiers; which one, and where it is kept, is said by environment variables."""

import os

import trio_cogment.rl as tc

ScriptedTasks, ScriptedEnv = tc.verifiers_plugin(os.environ["SCRIPTED_GAME"], store=os.environ["SCRIPTED_STORE"])

__all__ = ["ScriptedEnv", "ScriptedTasks"]
