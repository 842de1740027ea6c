"""Seats: actors of trials whose players are not tasks of a participant, but clients of a gateway, people or callers.

A trial pushes: observations, rewards, messages and the end come when they come. A client pulls: it asks, acts, goes
away and comes back. `mailbox` is what lies between the two, as a table without I/O. `seat` is its shell: it takes part
in the trial as a client actor, in this process without a task. `round` is one trial with its seats.

The other modules are about who takes the part of an agent in trials of environments: `base` is their interface.
"""
