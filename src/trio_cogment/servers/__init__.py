"""The servers of the platform: orchestrator, datastore, model registry, directory; and the directory's client."""
