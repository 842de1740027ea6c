"""Bridges: Trio under code that is not Trio, in a thread of its own or as a guest of the caller's thread.

A platform is a Trio program. Scripts, notebooks, asyncio programs and the `step` of a view are not, and each needs the
same four things: something held open in Trio, calls whose outcome comes back with its traceback, the cancellation of a
call whose caller does not want to wait any longer, and an end that leaves nothing behind.

`thread` runs Trio in a thread: it goes on while nobody calls, and any thread may call. `guest` runs Trio in the
caller's thread (Trio's reference, "Using guest mode"), which must have a loop that lets it run: asyncio's in
`trio_cogment.aio`; in a view, the call that waits is the loop. `call` is what both do with one function.
"""
