"""Shared set-up of the tests."""

import os

import torch
from hypothesis import settings

os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
"""Nothing here talks to the network, Prefect's test server neither."""

torch.set_num_threads(1)
"""The tensors are small: more threads only spin, and on a busy machine a test then takes minutes."""

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("exploring", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
"""The same examples every time, so that a change alone decides whether the suite passes; HYPOTHESIS_PROFILE=exploring
draws new ones."""
