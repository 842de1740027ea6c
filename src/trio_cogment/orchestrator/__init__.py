"""The orchestrator: a Trio shell around the pure machines of `trio_cogment.trial`."""

from trio_cogment.orchestrator.orchestrator import Orchestrator as Orchestrator
