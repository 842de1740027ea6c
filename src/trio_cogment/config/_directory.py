"""Settings of a directory, and of those who use one."""

from __future__ import annotations

from dataclasses import dataclass

from trio_cogment.config._checks import SECONDS, SECONDS_OR_NEVER, SIZE, Range, check_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryConfig:
    """How a directory is asked, and how registrations are kept in it.

    Attributes:
        inquiry_timeout_seconds: how long one inquiry may take, connecting and waiting for its first reply included.
            15 s suffice for noticing that a connection (older than 20 s) has died without a word, and for another one.
        registration_timeout_seconds: the same for a registration, and for a look whether it is still there. A directory
            that calls a service back before it answers may take more than 20 s to find that it cannot.
        deregistration_timeout_seconds: how long leaving may take, all registrations together.
        check_interval_seconds: how often the directory is asked whether it still knows us (give or take a fifth).
        retry_initial_seconds: the pause after a first failure to register (give or take a fifth); each further one is
            twice as long.
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
        check_ranges(self, dict.fromkeys(self.__slots__, SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryServerConfig:
    """How a directory looks after what is registered with it.

    Attributes:
        check_interval_seconds: how often a service that is shown is looked at, counted from the last look.
        recheck_initial_seconds: the pause before a service is looked at again that has failed once; each further one is
            twice as long, and none longer than `check_interval_seconds`.
        scan_interval_seconds: how often it is found out who is due.
        connect_timeout_seconds: how long one look tries to connect.
        answer_timeout_seconds: how long one look may take, connecting included.
        max_failures: a service is forgotten when so many looks in a row have failed, and not before
        forget_seconds: have passed since the first of them.
        max_concurrent_checks: services that are shown and are being looked at, at the same time; and again as many
            that are not shown.
        registration_wait_seconds: how long the reply to a registration waits for the first look.
        inquiry_wait_seconds: how long an inquiry waits for looks (`check_on_inquire`).
        fresh_check_seconds: a look no older than this is not repeated for an inquiry.
        registration_lag_seconds: how long an inquiry that finds nobody waits for somebody to come; 0: not at all.
        load_balancing: show only those with little load, in any order.
        check_on_inquire: look at those who fit before an inquiry is answered.
        force_permanent: every registration is a permanent one.
        max_entries: registrations; further ones are refused.
        max_duplicates: registrations that are the same in everything; a further one takes the place of the oldest, of a
            server that crashed and is back, most likely.
        max_entry_bytes: host and properties of one registration.
        max_total_bytes: of all of them.
        max_pending_changes: registrations and deregistrations that wait for the file; further ones wait for these.
        write_retry_seconds: how long after a failure the file is written again.
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
    load_balancing: bool = False
    check_on_inquire: bool = False
    force_permanent: bool = False
    max_entries: int = 10_000
    max_duplicates: int = 10
    max_entry_bytes: int = 16 * 1024
    max_total_bytes: int = 16 * 1024 * 1024
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
    "max_entries": SIZE,
    "max_duplicates": SIZE,
    "max_entry_bytes": SIZE,
    "max_total_bytes": SIZE,
    "max_pending_changes": (1, 10**6),
    "write_retry_seconds": SECONDS,
}
