"""The names of the platform's gRPC services, without their package.

Nothing is imported here: a server announces its services before it imports anything slow. `trio_cogment.services` says
what each of them is.
"""

SERVICE_ACTOR = "ServiceActorSP"
ENVIRONMENT = "EnvironmentSP"
DATALOG = "DatalogSP"
#: The name of the data log service in the reference's documentation. It is served beside `DatalogSP`, and has no kind.
LOG_EXPORTER = "LogExporterSP"
PRE_TRIAL_HOOKS = "TrialHooksSP"
LIFECYCLE = "TrialLifecycleSP"
CLIENT_ACTOR = "ClientActorSP"
DATASTORE = "TrialDatastoreSP"
MODEL_REGISTRY = "ModelRegistrySP"
DIRECTORY = "DirectorySP"
#: A gateway's service for clients of dm_env_rpc. It is not of the platform, and has no kind.
DM_ENV_RPC = "Environment"
#: The service of a trainer. It is not of the platform, and has no kind.
TRAINER = "TrainerService"
#: A gateway's service for clients of the legacy API. It has no kind either.
LEGACY_TRIAL = "Trial"
#: A gateway's service for orchestrators of the legacy API.
LEGACY_LOG_EXPORTER = "LogExporter"
