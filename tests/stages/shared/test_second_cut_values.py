"""What the second cut gets from the first: the springs' values, the body's, and the law they were fitted under."""

from functools import partial

import numpy as np
import polars as pl
import pytest

from disect_sim.parameters import SPRING_NAMES
from stages.calibrate.calibrate_report import body_table
from stages.runtime.artifacts import check_table, read_table, write_table
from stages.runtime.catalogue import ARTIFACTS
from stages.shared.cut import of_material, read_possible_materials, read_second_cut_values

PARAMETERS = "transport/parameters"


@pytest.fixture
def scan_dir(tmp_path):
    springs = pl.DataFrame(
        [
            pl.Series("position_m", [[0.0, 0.01], [0.0, 0.02]], pl.Array(pl.Float64, 2)),
            pl.Series("area_m2", [1e-5, 1e-5], pl.Float64),
            pl.Series("surface", [True, False], pl.Boolean),
            *(pl.Series(name, [1.0, 2.0], pl.Float64) for name in SPRING_NAMES),
        ]
    )
    body = body_table({"young_pa": np.asarray(2.0e5), "sdf_mu": np.asarray(0.6), "offset_y": np.asarray(0.1)})
    check_table(ARTIFACTS["calibrate/body"], body, "calibrate/body")
    write_table(tmp_path, PARAMETERS, springs)
    write_table(tmp_path, "calibrate/body", body)
    return tmp_path


def test_a_material_value_of_the_first_cut_is_that_of_the_second(scan_dir):
    """A softer fruit given only in calibrate.start is softer in the second cut too; springs' values are not body's."""
    values = read_second_cut_values(partial(read_table, scan_dir))
    assert set(values) == {*SPRING_NAMES, "young_pa"}
    assert values["young_pa"] == 2.0e5 and values["sdf_mu"].tolist() == [1.0, 2.0]


def drawn_material(scan_dir, rows):
    """The second cut's values as those of the one possible material in the rows of calibrate/draws."""
    schema = {"draw": pl.Int64, "name": pl.String, "factor": pl.Float64}
    write_table(scan_dir, "calibrate/draws", pl.DataFrame(rows, schema=schema, orient="row"))
    read = partial(read_table, scan_dir)
    (factors,) = read_possible_materials(read, np.array([True, False]))
    return of_material(read_second_cut_values(read), factors)


def test_a_possible_material_has_its_own_skin(scan_dir):
    """Factors of `surface_<name>` hold on the skin, those of the flesh elsewhere, and on both where there is one."""
    drawn = {"sdf_ke": 2.0, "surface_sdf_ke": 3.0, "sdf_mu": 0.5, "surface_sdf_tip": 4.0, "young_pa": 1.5}
    found = drawn_material(scan_dir, [(0, name, factor) for name, factor in drawn.items()])
    assert found["sdf_ke"].tolist() == [3.0, 4.0]
    assert found["sdf_mu"].tolist() == [0.5, 1.0]
    assert found["sdf_tip"].tolist() == [4.0, 2.0]
    assert found["young_pa"].shape == () and found["young_pa"] == 3.0e5
    assert found["sdf_radius"].tolist() == [1.0, 2.0]


def test_without_material_values_the_table_is_empty_and_valid():
    check_table(ARTIFACTS["calibrate/body"], body_table({}), "calibrate/body")
