"""The rules a cut mesh keeps: each broken rule is a sentence."""

from dataclasses import replace

import numpy as np
import pytest

from disect_sim.outcome import InputError
from disect_sim.virtual_nodes.cutting import cut_by_plane
from tests.disect_sim.tet_meshes import BOX_VOLUME, jittered_box, regular_box


@pytest.fixture(scope="module")
def cut():
    return cut_by_plane(*jittered_box(1))


def changed(array, row, value):
    copy = array.copy()
    copy[row] = value
    return copy


def test_a_good_cut_mesh_passes(cut):
    cut.check()


def test_types_are_those_promised(cut):
    assert cut.nodes.dtype == cut.tet_fraction.dtype == cut.spring_area.dtype == np.float64
    for name in ("node_original", "tets", "tet_original", "virtual_parents", "spring_virtual"):
        assert getattr(cut, name).dtype == np.int32, name
    assert cut.tet_side.dtype == cut.virtual_side.dtype == np.int8
    assert cut.node_ghost.dtype == cut.spring_surface.dtype == np.bool_


BROKEN = {
    "no spring": lambda c: {"spring_virtual": c.spring_virtual[:0]},
    "short column": lambda c: {"tet_fraction": c.tet_fraction[:-1]},
    "nan": lambda c: {"nodes": changed(c.nodes, 0, np.nan)},
    "node index": lambda c: {"tets": changed(c.tets, 0, len(c.nodes))},
    "virtual index": lambda c: {"spring_virtual": changed(c.spring_virtual, 0, -1)},
    "lonely node": lambda c: {
        "nodes": np.concatenate([c.nodes, c.nodes[:1]]),
        "node_original": np.append(c.node_original, 0),
        "node_ghost": np.append(c.node_ghost, False),
    },
    "inverted tet": lambda c: {"tets": changed(c.tets, 0, c.tets[0, [0, 2, 1, 3]])},
    "side": lambda c: {"tet_side": changed(c.tet_side, 0, 0)},
    "fraction zero": lambda c: {"tet_fraction": changed(c.tet_fraction, 0, 0.0)},
    "fraction above one": lambda c: {"tet_fraction": changed(c.tet_fraction, 0, 1.1)},
    "lost material": lambda c: {
        "tet_fraction": changed(c.tet_fraction, np.argmin(c.tet_fraction), 0.9 * c.tet_fraction.min())
    },
    "shared node": lambda c: {"tet_side": changed(c.tet_side, 0, -1)},
    "ghost unknown": lambda c: {"node_ghost": np.zeros_like(c.node_ghost)},
    "coordinate": lambda c: {"virtual_coordinate": changed(c.virtual_coordinate, 0, 1.0)},
    "parents swapped": lambda c: {"virtual_parents": c.virtual_parents[:, ::-1]},
    "virtual side": lambda c: {"virtual_side": changed(c.virtual_side, 0, -1)},
    "spring swapped": lambda c: {"spring_virtual": c.spring_virtual[:, ::-1]},
    "spring without area": lambda c: {"spring_area": changed(c.spring_area, 0, 0.0)},
    "stretched spring": lambda c: {"virtual_coordinate": changed(c.virtual_coordinate, 0, 1e-3)},
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_rule_is_refused_with_a_remedy(cut, fault):
    with pytest.raises(InputError, match="Run precut again"):
        replace(cut, **BROKEN[fault](cut)).check()


def test_masses_and_volumes_of_a_box():
    cut = cut_by_plane(*regular_box((5, 4, 6)), point=(0.01, 0, 0))
    assert cut.node_masses(800.0).sum() == pytest.approx(800.0 * BOX_VOLUME, rel=1e-12)
    assert (cut.node_masses(800.0) > 0).all()
    assert cut.material_volume(1) == pytest.approx(BOX_VOLUME * 0.3, rel=1e-12)
    assert cut.material_volume() == pytest.approx(BOX_VOLUME, rel=1e-12)
    # Real tets not touched by the plane are whole, the copies of crossed ones share their volume.
    assert cut.tet_volumes()[cut.tet_fraction == 1.0].sum() < BOX_VOLUME < cut.tet_volumes().sum()


def test_virtual_nodes_follow_their_parents(cut):
    moved = cut.nodes @ np.diag([1.1, 0.9, 1.0]) + np.array([0.01, 0.0, -0.02])
    expected = cut.virtual_positions() @ np.diag([1.1, 0.9, 1.0]) + np.array([0.01, 0.0, -0.02])
    assert np.allclose(cut.virtual_positions(moved), expected, atol=1e-15)
