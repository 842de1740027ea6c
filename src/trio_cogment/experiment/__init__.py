"""Experiments with people: from consent to data, by one file.

An experiment is a sequence: pages to read and to answer, a waiting room, trials with others, pages again, and an end
with a code. What makes it hard is not the sequence but the people in it. They load pages again, open second tabs, close
the laptop, come back after an hour, and meanwhile others wait for them. So one machine without time and I/O knows where
everybody is (`machine`, over the table in `participant_table`): it is told what happens and says what is to be done,
and all of its state is data. `store` keeps that state and the events that led to it in one transaction, so a server
that was stopped goes on where it was. `server` is the Trio shell with the pages. Trials are those of
`trio_cogment.play`: seats that a server holds, to which pages come and go.

`definition` has what an experiment may be, `experiment_file` reads it, and `tables` makes of the events what people
read into pandas or R.

Trials need NumPy, the extra `arrays`, and what their environments need.
"""

from __future__ import annotations

from trio_cogment.base.lazy_names import lazy_names as _lazy_names

TYPE_CHECKING = False  # as type checkers know it; a command that reads a file imports no server
if TYPE_CHECKING:
    from trio_cogment.experiment.definition import Experiment as Experiment
    from trio_cogment.experiment.demo import play_demo as play_demo
    from trio_cogment.experiment.experiment_file import load_experiment as load_experiment
    from trio_cogment.experiment.routes import experiment_routes as experiment_routes
    from trio_cogment.experiment.server import ExperimentServer as ExperimentServer
    from trio_cogment.experiment.server import open_experiment as open_experiment
    from trio_cogment.experiment.store import ExperimentStore as ExperimentStore
    from trio_cogment.experiment.store import opened_store as opened_store
    from trio_cogment.experiment.tables import tables_of as tables_of
    from trio_cogment.experiment.trials import ExperimentTrials as ExperimentTrials

_HOMES = {
    "Experiment": "definition",
    "ExperimentServer": "server",
    "ExperimentStore": "store",
    "ExperimentTrials": "trials",
    "experiment_routes": "routes",
    "load_experiment": "experiment_file",
    "open_experiment": "server",
    "opened_store": "store",
    "play_demo": "demo",
    "tables_of": "tables",
}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES)
__all__ = sorted(_HOMES)  # noqa: PLE0605  the names are texts
