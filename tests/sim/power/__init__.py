"""Loss of power under SQLite: a disk that remembers what was written and synced, and what may be left of it."""
