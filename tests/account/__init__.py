"""The reference account of a trial: a plain model that says everything each participant must have seen.

It is written from the documents and from the published protocol, and imports nothing of `trio_cogment.trial`, which a
test enforces. It has no tables and saves no time: it keeps what everybody said and finds out what follows from it.
`tests.account.beside` runs it beside a trial's machine and compares the two, input by input, whole.
"""
