"""Data sets of trials: stored trials as Parquet files or in Minari, and recorded episodes played again.

A datastore has samples: what each actor saw and did in a tick, as bytes. Learning from data wants steps: an
observation, the action that followed it, and the reward and the end that came of it, which are in the next sample.
`steps` makes the one of the other, and everything else reads or writes steps.

A data set may be larger than memory, and writing one may be interrupted. So trials are streamed, one after the other,
and a folder is written under another name and takes its place when all of it is whole (`placing`).
"""
