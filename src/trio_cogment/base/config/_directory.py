"""Settings of a directory, and of its clients."""

from __future__ import annotations

from trio_cogment.base.config.declarations import PEER, SECONDS_OR_NEVER, TURNS, Flag, Settings, Shared, setting
from trio_cogment.base.records import record


@record(kw_only=True)
class DirectoryConfig(Settings):
    """How a client uses a directory: inquiries, and keeping services registered."""

    inquiry_timeout_seconds: float = setting(
        15.0,
        "how long one inquiry may take, including connecting and waiting for the first reply. 15 s are enough "
        "to notice that a connection (older than 20 s) is dead, and to open another",
    )
    registration_timeout_seconds: float = setting(
        30.0,
        "how long a registration may take, or the check whether it still exists. The directory calls the "
        "service back before it answers; if it cannot reach it, that may take more than 20 s",
    )
    deregistration_timeout_seconds: float = setting(
        2.0, "how long deregistering may take on leaving, all registrations together"
    )
    check_interval_seconds: float = setting(10.0, "how often the registrations are verified (plus or minus a fifth)")
    retry_initial_seconds: float = setting(
        1.0,
        "the pause after the first failure to register (plus or minus a fifth); each further pause is twice as long",
    )
    retry_max_seconds: float = setting(10.0, "the longest of these pauses")
    reconnect_max_seconds: float = setting(2.0, "the longest pause between attempts to connect to the directory")


@record(kw_only=True)
class DirectoryServerConfig(Settings):
    """How a directory checks and keeps registrations."""

    check_interval_seconds: float = setting(10.0, "the pause between two health checks of a service that is shown")
    recheck_initial_seconds: float = setting(
        1.0,
        "the pause after the first check that failed; each further pause is twice as long, and none is longer "
        "than `check_interval_seconds`",
    )
    scan_interval_seconds: float = setting(1.0, "how often the directory looks for checks that are due")
    connect_timeout_seconds: float = setting(3.0, "how long one check may take to connect")
    answer_timeout_seconds: float = setting(10.0, "how long one check may take, including connecting")
    max_failures: int = setting(
        3,
        "a registration is removed when this many checks in a row have failed, and `forget_seconds` have passed "
        "since the first of them",
        within=(1, 10**6),
        of="service",
    )
    forget_seconds: float = setting(
        120.0, "how long after the first of these checks a registration is kept", within=SECONDS_OR_NEVER
    )
    max_concurrent_checks: int = setting(
        64,
        "how many checks may run at the same time of services that are shown, and again of services that are not",
        within=(1, 10**4),
        shared=Shared("health checks", TURNS, "the service", "the check's time limit"),
    )
    registration_wait_seconds: float = setting(
        2.0, "how long the reply to a registration waits for the first check", within=SECONDS_OR_NEVER
    )
    inquiry_wait_seconds: float = setting(
        2.0, "how long an inquiry waits for checks (`check_on_inquire`)", within=SECONDS_OR_NEVER
    )
    fresh_check_seconds: float = setting(
        0.1, "a check that is not older than this is not repeated for an inquiry", within=SECONDS_OR_NEVER
    )
    registration_lag_seconds: float = setting(
        0.0,
        "how long an inquiry without results waits for a service to appear; 0: not at all",
        within=SECONDS_OR_NEVER,
        flag=Flag(
            "--registration_lag",
            "COGMENT_DIRECTORY_REGISTRATION_LAG",
            metavar="SECONDS",
            text="How long an inquiry that finds no service waits for one to register; 0: not at all. By default "
            "it waits only in the first 5 s after the start.",
        ),
    )
    startup_lag_seconds: float = setting(
        5.0,
        "during this time from its start a directory lets every inquiry without results wait for a service to "
        "appear, as services that start at the same moment, or were registered before a restart, may come a "
        "little later; 0: not at all",
        within=SECONDS_OR_NEVER,
    )
    farewell_seconds: float = setting(
        1.0,
        "how long a directory that stops waits for further deregistrations, while services that are checked are "
        "registered; 0: not at all",
        within=SECONDS_OR_NEVER,
    )
    load_balancing: bool = setting(
        False,
        "show only the services with the lowest load, in random order",
        flag=Flag("--load_balancing", "COGMENT_DIRECTORY_LOAD_BALANCING"),
    )
    check_on_inquire: bool = setting(
        False,
        "check the matching services before an inquiry is answered",
        flag=Flag("--check_on_inquire", "COGMENT_DIRECTORY_CHECK_ON_INQUIRE"),
    )
    force_permanent: bool = setting(
        False, "make every registration permanent", flag=Flag("--force_permanent", "COGMENT_DIRECTORY_FORCE_PERMANENT")
    )
    max_entries: int = setting(
        10_000,
        "the most registrations; further ones are refused",
        shared=Shared(
            "registrations",
            "max_owner_entries",
            "whoever has registered it",
            "Deregister; for those that are checked, checks that fail",
        ),
    )
    max_owner_entries: int = setting(
        5_000,
        "the most registrations of one owner: a caller by its address, token or certificate, or all who share "
        "an authentication token",
    )
    max_duplicates: int = setting(
        10,
        "the most registrations of one owner that are equal in everything; a further one replaces the oldest, "
        "which was most likely left behind by a server that crashed",
        of="account",
    )
    max_entry_bytes: int = setting(
        16 * 1024, "the largest size of the host and properties of one registration", of="message"
    )
    max_total_bytes: int = setting(
        16 * 1024 * 1024,
        "the largest size of the hosts and properties of all registrations",
        shared=Shared("bytes of registrations", "max_owner_bytes", "whoever has registered it", "as above"),
    )
    max_owner_bytes: int = setting(8 * 1024 * 1024, "the same for those of one owner")
    max_pending_changes: int = setting(
        1000,
        "the most changes that wait to be written; further requests wait for room",
        within=(1, 10**6),
        shared=Shared("changes that wait", TURNS, PEER, "writing the file"),
    )
    write_retry_seconds: float = setting(5.0, "the pause before the file is written again after a failure")
