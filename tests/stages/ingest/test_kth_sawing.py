"""KTH sawing runs: two text files in one ZIP archive, read, checked and ingested although they begin in contact."""

import zipfile

import numpy as np
import pytest

from stages.ingest.ingest import ingest
from stages.ingest.log_file import ON_KNIFE, read_log
from stages.runtime.errors import InputError
from tests.real_data import real_file
from tests.stages.force_logs import (
    PARAMS,
    SyntheticCut,
    kth_tables,
    synthetic_cut,
    with_params,
    write_kth,
)

RUNS = [f"{number:02d}" for number in range(1, 22)]


def sawing_cut() -> SyntheticCut:
    """In contact from the start: down in steps, to and fro along base y, held back along the stroke."""
    time = np.arange(0.0, 4.0, 0.005)
    stroke = 0.5 * np.pi * time
    depth = 0.005 * (time - np.sin(4.0 * stroke) / (4.0 * 0.5 * np.pi))  # stops at every end of a stroke
    position = np.column_stack([np.full(len(time), 0.5), -0.2 + 0.02 * np.sin(stroke), 0.23 - depth])
    force = np.column_stack([0.0 * time, -3.0 * np.tanh(3.0 * np.cos(stroke)), 2.5 + 100.0 * depth])
    return SyntheticCut(time, position, force, force)


@pytest.fixture
def tables() -> dict[str, str]:
    return kth_tables(sawing_cut())


def refusal(path, params=PARAMS) -> str:
    """The message, which says what, rule and remedy."""
    with pytest.raises(InputError) as caught:
        read_log(path, params)
    message = str(caught.value)
    assert message.endswith(".") and path.name in message and message.count(". ") >= 2
    return message


def test_a_run_is_read_with_units_sign_and_clock(tmp_path, tables):
    cut = sawing_cut()
    log = read_log(write_kth(tmp_path / "run01.zip", tables), PARAMS)
    assert (log.source_format, log.time_unit, log.clock) == ("a KTH sawing run", "ns", "field.header.stamp")
    assert log.force_factor == ON_KNIFE and log.robot == "ABB YuMi"
    assert np.allclose(
        log.time_s, cut.time_s, rtol=0.0, atol=1e-9
    )  # the ns survive although stamps have 19 digits
    assert np.allclose(log.position_m, cut.position_m, atol=1e-12)
    assert np.allclose(log.force_n, cut.reading_n, atol=1e-12)


def test_positions_are_interpolated_over_the_overlap(tmp_path):
    cut = sawing_cut()
    log = read_log(write_kth(tmp_path / "run.zip", kth_tables(cut, delay_s=0.0125)), PARAMS)
    # The first force that the positions cover is the first at or after 12.5 ms; the clock still counts from force 0.
    assert log.time_s[0] == pytest.approx(0.015) and log.time_s[-1] == pytest.approx(cut.time_s[-1])
    exact = np.interp(log.time_s - 0.0125, cut.time_s, cut.position_m[:, 1])
    assert np.allclose(log.position_m[:, 1], exact, atol=1e-9)


def test_the_folder_of_a_run_is_read_like_its_archive(tmp_path, tables):
    for name, text in tables.items():
        (tmp_path / name).write_text(text)
    folder = read_log(tmp_path / "forces.txt", PARAMS)
    archive = read_log(write_kth(tmp_path / "run.zip", tables), PARAMS)
    assert np.array_equal(folder.force_n, archive.force_n)
    assert np.array_equal(folder.position_m, archive.position_m)
    (tmp_path / "positions.txt").unlink()
    assert "zip run01.zip forces.txt positions.txt" in refusal(tmp_path / "forces.txt")


def test_a_run_that_begins_in_contact_is_ingested_without_tare(tmp_path, tables):
    log = read_log(write_kth(tmp_path / "run.zip", tables), PARAMS)
    result = ingest(log, PARAMS)
    assert result.onset == result.descent.top and result.tare.method.startswith("none")
    assert np.array_equal(result.net_n, result.raw_n) and result.raw_n[:, 1].min() > 2.0
    assert result.valid[result.descent.top :].all()
    # The default before this rule: the cutting force was taken for the tare.
    with pytest.raises(InputError, match=r"no contact was found.*ingest\.tare=none"):
        ingest(log, with_params(tare="window"))


def test_tare_none_for_any_log_whose_sensor_was_zeroed(tmp_path, tables):
    log = read_log(write_kth(tmp_path / "run.zip", tables), PARAMS)
    assert np.array_equal(ingest(log, with_params(tare="none")).net_n, ingest(log, PARAMS).net_n)


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ({"forces.txt": "forces.txt"}, "no positions.txt"),
        ({"positions.txt": "positions.txt"}, "no forces.txt"),
        ({"01/forces.txt": "forces.txt", "01/positions.txt": "positions.txt"}, "in a folder"),
        ({"../forces.txt": "forces.txt", "positions.txt": "positions.txt"}, "in a folder"),
    ],
)
def test_missing_and_nested_members(tmp_path, tables, members, what):
    path = write_kth(tmp_path / "run.zip", {member: tables[name] for member, name in members.items()})
    message = refusal(path)
    assert what in message and "zip run01.zip forces.txt positions.txt" in message


def test_a_member_twice(tmp_path, tables):
    path = write_kth(tmp_path / "run.zip", tables)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("forces.txt", tables["forces.txt"])
    assert "2 times" in refusal(path)


def test_a_bomb_is_not_unpacked(tmp_path, tables):
    bomb = {"forces.txt": tables["forces.txt"] + "0" * 5_000_000, "positions.txt": tables["positions.txt"]}
    path = write_kth(tmp_path / "run.zip", bomb)
    assert path.stat().st_size < 200_000
    assert "5 MB when unpacked" in refusal(path, with_params(max_bytes=1_000_000))


def test_an_archive_that_lies_about_its_size(tmp_path, tables):
    path = write_kth(tmp_path / "run.zip", tables)
    size = len(tables["forces.txt"])
    data = path.read_bytes().replace(size.to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    path.write_bytes(data)
    refusal(path)


@pytest.mark.parametrize("cut_at", [30, 400, -30])
def test_a_damaged_archive(tmp_path, tables, cut_at):
    path = write_kth(tmp_path / "run.zip", tables)
    path.write_bytes(path.read_bytes()[:cut_at])
    refusal(path)


def change_line(text: str, number: int, change) -> str:
    """The text with the cells of one line changed; lines count from 1."""
    lines = text.splitlines()
    lines[number - 1] = ",".join(change(lines[number - 1].split(",")))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("number", "change", "what"),
    [
        (1, lambda cells: [*cells[:-4], "z", *cells[-3:]], "must have field.header.stamp"),
        (10, lambda cells: [*cells[:5], "blade", *cells[6:]], "line 10: field.wrench.force.y is 'blade'"),
        (10, lambda cells: [*cells[:2], "1.5e9", *cells[3:]], "a whole number of ns"),
        (10, lambda cells: cells[:3], "line 10: field.wrench.force.x is 'None'"),
        (10, lambda cells: [*cells, "7", "8"], "as many cells as the header"),
    ],
    ids=["column", "word", "stamp", "short row", "long row"],
)
def test_rows_that_are_no_samples(tmp_path, tables, number, change, what):
    text = change_line(tables["forces.txt"], number, change)
    message = refusal(write_kth(tmp_path / "run.zip", tables | {"forces.txt": text}))
    assert what in message and "forces.txt" in message


def test_empty_and_headers_only(tmp_path, tables):
    assert "is empty" in refusal(write_kth(tmp_path / "a.zip", tables | {"positions.txt": " \n"}))
    header = tables["positions.txt"].splitlines()[0] + "\n"
    assert "no rows" in refusal(write_kth(tmp_path / "b.zip", tables | {"positions.txt": header}))


def test_clocks_that_do_not_fit(tmp_path, tables):
    late = kth_tables(sawing_cut(), delay_s=100.0)["positions.txt"]
    assert "overlap in time" in refusal(write_kth(tmp_path / "a.zip", tables | {"positions.txt": late}))
    lines = tables["positions.txt"].splitlines()
    gap = "\n".join(lines[:100] + lines[200:])
    assert "gap of 505 ms" in refusal(write_kth(tmp_path / "b.zip", tables | {"positions.txt": gap}))
    twice = "\n".join([*lines[:100], lines[99], *lines[100:]])
    assert "does not increase" in refusal(write_kth(tmp_path / "c.zip", tables | {"positions.txt": twice}))


def test_an_archive_of_arrays_is_still_npz(tmp_path):
    path = tmp_path / "log.zip"
    cut = synthetic_cut()
    with path.open("wb") as file:
        np.savez(file, time=cut.time_s, position=cut.position_m, force=cut.reading_n)
    columns = {"time": "time", "position": "position", "force": "force"}
    assert read_log(path, with_params(columns=columns)).source_format == "NPZ"


@pytest.mark.parametrize("run", RUNS)
def test_real_runs_are_ingested(run):
    """All 21 runs: pushed up and held back, from the start of the descent on; not rejected for a wrong reason."""
    path = real_file("kth_sawing", run, "forces.txt")
    log = read_log(path, PARAMS)
    result = ingest(log, PARAMS, source=run)
    assert 100.0 < result.record.sampling.rate_hz < 400.0
    assert result.time_s[result.onset] < 2.0 and result.on_board is None
    assert 3.0 < result.filtered_n[:, 1].max() < 13.0
    assert 0.012 < result.descent.depth_m.max() < 0.054
    assert result.valid.mean() > 0.85
