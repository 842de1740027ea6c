"""Models of the stores: what a datastore, a model registry and a directory do, as plain dictionaries with rules.

They are written from the documents and the published protocol and import nothing of what they judge, which a test
enforces. `trio_cogment.testing.check_linearizable` compares them with what several clients were answered at once.
"""
