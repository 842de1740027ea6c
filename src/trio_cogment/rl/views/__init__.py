"""Trials as environments of the field's libraries: whoever steps such an environment sits in a trial."""
