"""Shared set-up of the tests."""

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("exploring", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
"""The same examples every time, so that a change alone decides whether the suite passes; HYPOTHESIS_PROFILE=exploring
draws new ones."""
