"""Trials as environments of the field's libraries: whoever steps such an environment sits in a trial.

A training loop owns its thread and calls `reset` and `step`; a trial is Trio code that calls its participants. A view
turns the one into the other. `Match` is what all views have in common: each episode is a trial, each step a tick. The
classes over it (`gymnasium`, `parallel`, `aec`, `vector`) only have the shape of their library; `turns` decides which
ticks belong to one step, where others act in between.

Where everybody who takes part is in this process, Trio runs as a guest of the caller's thread and only while the caller
waits (`pump`): a step is one stack of calls, without a thread or a task switch, and the trial's time stands still while
the caller computes gradients. Otherwise Trio has a thread of its own (`drivers` has both). The next trial is started
while the present one is played (`next_round`), so that a reset need not wait for it.
"""
