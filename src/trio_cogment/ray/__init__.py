"""Ray: the workers of a cluster as sites of a run, so that `run_trials` plays on many machines.

`run_trials(1000, on=trio_cogment.ray.workers(64), ...)` needs the extra `ray`. Ray places processes on machines and
starts them again; a trial lives and dies within one of them; the run repeats it elsewhere. A worker is an actor of Ray
with one platform, open in one thread of Trio for as long as the worker lives. A call gives it the trials that are to
begin, and waits for what there is to tell of those that run. Ray's price is for each call, in half a dozen threads: so
short trials go to a worker, and come back from it, several at a time.

Nobody is asked whether a worker is alive: Ray says when it is not. Three things keep that simple. Ray repeats no call
(`max_task_retries=0`), because a trial that is played again needs another id. A worker tells which trials have begun,
apart from their results, so a trial that a dying worker was given and never played is not counted against its retries.
And a worker whose parent is gone ends itself: Ray leaves it running when its node is lost, and starts another one.
"""

from trio_cogment.ray._workers import Workers, workers

__all__ = ["Workers", "workers"]
