"""`trio-cogment run submit`, `list`, `watch`, ...: a client of a trainer."""
