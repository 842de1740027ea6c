"""The database file of a datastore: its tables, and their versions."""

from __future__ import annotations

from trio_cogment.base.sqlite_file import SqliteFormat
from trio_cogment.servers.datastore.storage import ROW_BYTES

#: Rowids go up in the order of arrival, so that new samples are appended, whatever their trial; they are the positions.
#: `samples_trial` ends with the rowid (every index does), so it pages a trial by position.
_SCHEMA = """
CREATE TABLE trials (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    params BLOB NOT NULL,
    logged INTEGER NOT NULL,
    ending INTEGER NOT NULL DEFAULT 0,
    samples_count INTEGER NOT NULL DEFAULT 0,
    high_tick INTEGER NOT NULL DEFAULT -1,
    state INTEGER NOT NULL DEFAULT 0,
    outcome BLOB NOT NULL DEFAULT x'',
    owner TEXT NOT NULL DEFAULT '',
    bytes INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX trials_owner ON trials (owner, bytes) WHERE owner != '';
CREATE INDEX trials_open ON trials (number) WHERE ending = 0 AND logged = 1;
CREATE TABLE properties (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (name, value, number)
) WITHOUT ROWID;
CREATE INDEX properties_of ON properties (number);
CREATE TABLE samples (
    position INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL,
    tick INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX samples_tick ON samples (trial, tick);
CREATE INDEX samples_trial ON samples (trial);
CREATE TABLE deleted (number INTEGER PRIMARY KEY);
CREATE TABLE recoveries (count INTEGER NOT NULL);
INSERT INTO recoveries VALUES (0);
"""

#: Version -> what leads from it to the next, within one transaction.
_MIGRATIONS: dict[int, str] = {
    1: "ALTER TABLE trials ADD COLUMN outcome BLOB NOT NULL DEFAULT x''",
    2: "ALTER TABLE trials ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    3: f"""
ALTER TABLE trials ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE trials SET bytes = {ROW_BYTES} + length(CAST(trial_id AS BLOB)) + length(CAST(user_id AS BLOB)) + length(params)
    + length(outcome)
    + (SELECT coalesce(sum(length(data) + {ROW_BYTES}), 0) FROM samples WHERE samples.trial = trials.number);
CREATE INDEX trials_owner ON trials (owner, bytes) WHERE owner != ''
""",
}

#: A later version adds its step to `_MIGRATIONS`.
FORMAT = SqliteFormat(
    user="datastore",
    application_id=0x5443676D,  # "TCgm"
    version=4,
    schema=_SCHEMA,
    migrations=_MIGRATIONS,
)
