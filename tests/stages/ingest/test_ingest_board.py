"""Contact with the board at the end of a run: found, left out, and no fault of an air run."""

import numpy as np
import pytest

from stages.ingest.contact import board_contact, find_descent
from stages.ingest.ingest import ingest, metrics
from stages.ingest.log_file import read_log
from tests.stages.force_logs import LOWEST_M, PARAMS, synthetic_cut, with_params, write_recording

BOARD_M = LOWEST_M + 0.002
"""Height of the board in these logs, which the arm presses down on."""
PRESS_N_M = 20.0e3


def pressed(cut):
    """The same run over a board that gives way by 1 mm per 20 N."""
    press = PRESS_N_M * np.maximum(BOARD_M - cut.position_m[:, 2], 0.0)
    cut.reading_n[:, 2] += press
    return cut


@pytest.fixture
def read(tmp_path):
    return lambda name, cut: read_log(write_recording(tmp_path / name, cut), PARAMS)


def test_what_the_board_does_is_not_the_fruit(read):
    """The rise is found within 1 mm (the low-pass blurs 20 ms at 60 mm/s) and left out of the comparison."""
    with_board = ingest(read("cut.json", pressed(synthetic_cut(seed=1))), with_params(tare="window"))
    without = ingest(read("free.json", synthetic_cut(seed=1)), with_params(tare="window"))
    assert without.on_board is None
    assert with_board.on_board is not None
    found = with_board.record.height_m[with_board.on_board]
    assert found == pytest.approx(BOARD_M, abs=1.3e-3)
    assert not with_board.valid[with_board.on_board :].any()
    assert with_board.valid[: with_board.on_board].sum() > 0.8 * without.valid.sum()
    figures = metrics(with_board, "json", 0)
    assert figures["board_contact_s"] == pytest.approx(with_board.time_s[with_board.on_board])
    # 40 N of the board are not the fruit's peak of 25 N.
    assert figures["peak_force_n"] < 30.0


def test_an_air_run_that_ends_on_the_board_is_used_up_to_there(read):
    log = read("cut.json", synthetic_cut(seed=1))
    air = pressed(synthetic_cut(seed=11, air=True))
    result = ingest(log, with_params(tare="air"), air_runs={"air.json": read("air.json", air)})
    low = result.record.height_m < BOARD_M - 1e-4
    assert not result.valid[low].any()
    assert result.valid[result.record.height_m > BOARD_M + 1.5e-3].sum() > 200


def test_skin_that_gives_way_is_no_board():
    """Steep slopes higher up, and a tough end: fruit."""
    depth = np.linspace(0.0, 0.05, 500)
    descent = find_descent(0.06 - depth, "log")
    force = 30.0 * (1.0 - np.exp(-np.maximum(depth - 0.01, 0.0) / 0.003))
    tough_end = force + 4.0e3 * np.maximum(depth - 0.046, 0.0)
    assert board_contact(force, descent) is None
    assert board_contact(tough_end, descent) is None
    assert board_contact(force + 40.0e3 * np.maximum(depth - 0.048, 0.0), descent) is not None
