"""What holds for every test."""

import hypothesis

# A slow machine is no failure; a hang is found by the timeout of the whole test.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")
