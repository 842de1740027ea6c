"""Data sets of trials: stored trials as Parquet files or in Minari, and recorded episodes played again."""
