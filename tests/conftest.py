"""Shared set-up of the tests, and with --durations the seconds of every file."""

import os
from collections import Counter

import pytest
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

SECONDS_OF_FILES: Counter[str] = Counter()
"""Set-up, call and tear-down of all tests of a file; with pytest-xdist as the workers report them."""
SHOWN_FILES = 25


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SECONDS_OF_FILES[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.option.durations is None:
        return
    terminalreporter.section(f"seconds per file, the slowest {SHOWN_FILES}")
    for name, seconds in SECONDS_OF_FILES.most_common(SHOWN_FILES):
        terminalreporter.write_line(f"{seconds:8.1f}  {name}")
