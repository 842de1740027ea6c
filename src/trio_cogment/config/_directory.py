"""Settings of a directory, and of its clients."""

from __future__ import annotations

from trio_cogment._records import record
from trio_cogment.config._checks import SECONDS, SECONDS_OR_NEVER, SIZE, Range, check_ranges, names_of


@record(kw_only=True)
class DirectoryConfig:
    """How a client uses a directory: inquiries, and keeping services registered.

    Attributes:
        inquiry_timeout_seconds: how long one inquiry may take, including connecting and waiting for the first reply.
            15 s are enough to notice that a connection (older than 20 s) is dead, and to open another.
        registration_timeout_seconds: how long a registration may take, or the check whether it still exists. The
            directory calls the service back before it answers; if it cannot reach it, that may take more than 20 s.
        deregistration_timeout_seconds: how long deregistering may take on leaving, all registrations together.
        check_interval_seconds: how often the registrations are verified (plus or minus a fifth).
        retry_initial_seconds: the pause after the first failure to register (plus or minus a fifth); each further pause
            is twice as long.
        retry_max_seconds: the longest of these pauses.
        reconnect_max_seconds: the longest pause between attempts to connect to the directory.
    """

    inquiry_timeout_seconds: float = 15.0
    registration_timeout_seconds: float = 30.0
    deregistration_timeout_seconds: float = 2.0
    check_interval_seconds: float = 10.0
    retry_initial_seconds: float = 1.0
    retry_max_seconds: float = 10.0
    reconnect_max_seconds: float = 2.0

    def __post_init__(self) -> None:
        check_ranges(self, dict.fromkeys(names_of(self), SECONDS))


@record(kw_only=True)
class DirectoryServerConfig:
    """How a directory checks and keeps registrations.

    Attributes:
        check_interval_seconds: the pause between two health checks of a service that is shown.
        recheck_initial_seconds: the pause after the first check that failed; each further pause is twice as long, and
            none is longer than `check_interval_seconds`.
        scan_interval_seconds: how often the directory looks for checks that are due.
        connect_timeout_seconds: how long one check may take to connect.
        answer_timeout_seconds: how long one check may take, including connecting.
        max_failures: a registration is removed when this many checks in a row have failed, and
        forget_seconds: this much time has passed since the first of them.
        max_concurrent_checks: how many checks may run at the same time of services that are shown, and again of
            services that are not.
        registration_wait_seconds: how long the reply to a registration waits for the first check.
        inquiry_wait_seconds: how long an inquiry waits for checks (`check_on_inquire`).
        fresh_check_seconds: a check that is not older than this is not repeated for an inquiry.
        registration_lag_seconds: how long an inquiry without results waits for a service to appear; 0: not at all.
        startup_lag_seconds: during this time from its start a directory lets every inquiry without results wait for a
            service to appear, as services that start at the same moment, or were registered before a restart, may come
            a little later; 0: not at all.
        farewell_seconds: how long a directory that stops waits for further deregistrations, while services that are
            checked are registered; 0: not at all.
        load_balancing: show only the services with the lowest load, in random order.
        check_on_inquire: check the matching services before an inquiry is answered.
        force_permanent: make every registration permanent.
        max_entries: the most registrations; further ones are refused.
        max_owner_entries: the most registrations of one owner: a caller by its address, token or certificate, or all
            who share an authentication token.
        max_duplicates: the most registrations of one owner that are equal in everything; a further one replaces the
            oldest, which was most likely left behind by a server that crashed.
        max_entry_bytes: the largest size of the host and properties of one registration.
        max_total_bytes: the largest size of the hosts and properties of all registrations, and
        max_owner_bytes: of those of one owner.
        max_pending_changes: the most changes that wait to be written; further requests wait for room.
        write_retry_seconds: the pause before the file is written again after a failure.
    """

    check_interval_seconds: float = 10.0
    recheck_initial_seconds: float = 1.0
    scan_interval_seconds: float = 1.0
    connect_timeout_seconds: float = 3.0
    answer_timeout_seconds: float = 10.0
    max_failures: int = 3
    forget_seconds: float = 120.0
    max_concurrent_checks: int = 64
    registration_wait_seconds: float = 2.0
    inquiry_wait_seconds: float = 2.0
    fresh_check_seconds: float = 0.1
    registration_lag_seconds: float = 0.0
    startup_lag_seconds: float = 5.0
    farewell_seconds: float = 1.0
    load_balancing: bool = False
    check_on_inquire: bool = False
    force_permanent: bool = False
    max_entries: int = 10_000
    max_owner_entries: int = 5_000
    max_duplicates: int = 10
    max_entry_bytes: int = 16 * 1024
    max_total_bytes: int = 16 * 1024 * 1024
    max_owner_bytes: int = 8 * 1024 * 1024
    max_pending_changes: int = 1000
    write_retry_seconds: float = 5.0

    def __post_init__(self) -> None:
        check_ranges(self, _SERVER_RANGES)


_SERVER_RANGES: dict[str, Range] = {
    "check_interval_seconds": SECONDS,
    "recheck_initial_seconds": SECONDS,
    "scan_interval_seconds": SECONDS,
    "connect_timeout_seconds": SECONDS,
    "answer_timeout_seconds": SECONDS,
    "max_failures": (1, 10**6),
    "forget_seconds": SECONDS_OR_NEVER,
    "max_concurrent_checks": (1, 10**4),
    "registration_wait_seconds": SECONDS_OR_NEVER,
    "inquiry_wait_seconds": SECONDS_OR_NEVER,
    "fresh_check_seconds": SECONDS_OR_NEVER,
    "registration_lag_seconds": SECONDS_OR_NEVER,
    "startup_lag_seconds": SECONDS_OR_NEVER,
    "farewell_seconds": SECONDS_OR_NEVER,
    "max_entries": SIZE,
    "max_owner_entries": SIZE,
    "max_duplicates": SIZE,
    "max_entry_bytes": SIZE,
    "max_total_bytes": SIZE,
    "max_owner_bytes": SIZE,
    "max_pending_changes": (1, 10**6),
    "write_retry_seconds": SECONDS,
}
