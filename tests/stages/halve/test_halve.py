"""The stage halve: the half keeps its shape, lies on its flat face, and the second cut goes through it."""

import numpy as np
import polars as pl
import pytest

from disect_sim.cut_mesh import box_mesh
from stages.halve.description import HalveParams
from stages.halve.halve import _on_cut_face, halve, metrics, run
from stages.precut.precut import precut, tables
from stages.runtime.artifacts import read_table, write_table
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from stages.runtime.scan_file import ScanFile
from stages.runtime.stage_io import StageIO
from stages.shared.surface import Surface, is_closed, solid_moments
from tests.disect_sim.tet_meshes import jittered_box, regular_box, sheet
from tests.stages.scan_shapes import PROJECT

ALL = load_params(PROJECT / "params.yaml")
SIDE = {"positive": 1, "negative": -1}


def with_params(**changes) -> HalveParams:
    return HalveParams.model_validate({**ALL.halve.model_dump(), **changes})


def half_of(result, name) -> tuple[Surface, np.ndarray]:
    """The half-body and the points of its cut."""
    half = getattr(result, name)
    points = result.cut.virtual_positions()[result.cut.virtual_side == SIDE[name]]
    return Surface(half.vertices, half.faces), points


@pytest.fixture(scope="module", params=["regular", "jittered"])
def first_cut(request):
    mesh = regular_box((5, 4, 6)) if request.param == "regular" else jittered_box(3, (5, 4, 6))
    return precut(*mesh, ALL.precut)


@pytest.mark.parametrize("name", ["positive", "negative"])
@pytest.mark.parametrize("angle", [0.0, 37.0, 90.0])
def test_the_half_keeps_its_shape_and_lies_on_its_cut_face(first_cut, name, angle):
    half, points = half_of(first_cut, name)
    done = halve(half, points, with_params(half=name, angle_deg=angle))
    assert is_closed(done.surface.faces)
    # The face is made flat first: nodes that precut moved off the cut go back by up to 1 % of an edge.
    assert done.surface.volume_m3 == pytest.approx(half.volume_m3, rel=1e-3)
    assert np.array_equal(done.surface.faces, half.faces)
    y = done.surface.vertices[:, 1]
    assert np.abs(y[_on_cut_face(half, points)]).max() < 1e-9
    assert y.min() > -1e-9
    rotation = done.frame[:3, :3]
    assert np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) == pytest.approx(1.0)
    centre = solid_moments(done.surface)[0]
    assert np.allclose(centre[[0, 2]], 0.0, atol=1e-9)
    # Through the centre of mass of a block: near half of it on either side.
    assert done.positive_share == pytest.approx(0.5, abs=0.05)


def test_at_angle_0_the_former_vertical_lies_along_the_blade(first_cut):
    half, points = half_of(first_cut, "positive")
    frame = halve(half, points, with_params(angle_deg=0.0)).frame
    # The jittered box's cut face may lean a little: nodes were moved off the cut.
    assert np.allclose(frame[:3, :3] @ [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], atol=0.01)
    assert np.allclose(frame[:3, :3] @ [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], atol=0.01)
    across = halve(half, points, with_params(angle_deg=90.0)).frame
    assert np.allclose(across[:3, :3] @ [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], atol=0.01)


def test_as_it_was_it_is_only_moved_aside(first_cut):
    half, points = half_of(first_cut, "negative")
    done = halve(half, points, with_params(half="negative", rests_on="as_it_was", offset_m=0.002))
    assert np.array_equal(done.frame[:3, :3], np.eye(3))
    assert np.allclose(np.ptp(done.surface.vertices, axis=0), np.ptp(half.vertices, axis=0))
    assert solid_moments(done.surface)[0][0] == pytest.approx(-0.002)
    assert done.positive_share < 0.5


@pytest.mark.parametrize(("length", "pose"), [(0.02, "cut_face"), (0.05, "cut_face"), (0.07, "as_it_was")])
def test_a_slender_half_is_not_stood_on_its_cut_face(length, pose):
    """The face is 30 mm wide; by default a half more than twice as high stays as it lay."""
    mesh = box_mesh((-length, 0.0, -0.02), (length, 0.03, 0.02), (5, 3, 3))
    half, points = half_of(precut(*mesh, ALL.precut), "positive")
    done = halve(half, points, with_params(rests_on="auto"))
    assert metrics(done)["rests_on"] == done.rests_on == pose
    assert np.ptp(done.surface.vertices[:, 1]) == pytest.approx(
        length if pose == "cut_face" else 0.03, rel=0.02
    )


def test_the_frame_is_the_motion_that_was_applied(first_cut):
    half, points = half_of(first_cut, "positive")
    done = halve(half, points, with_params(rests_on="as_it_was", angle_deg=20.0))
    homogeneous = np.column_stack([half.vertices, np.ones(len(half.vertices))])
    assert np.allclose((homogeneous @ done.frame.T)[:, :3], done.surface.vertices, atol=1e-15)


@pytest.mark.parametrize("offset", [0.04, -0.04])
def test_a_plane_that_misses_is_refused(first_cut, offset):
    half, points = half_of(first_cut, "positive")
    with pytest.raises(InputError, match=r"halve.offset_m is -?0.04 m.*Move offset_m closer to 0"):
        halve(half, points, with_params(offset_m=offset))


def test_a_curved_first_cut_can_stand_but_not_lie():
    vertices, faces = sheet(lambda y, z: 5.0 * ((y - 0.02) ** 2 + z**2) - 0.005, 20)
    result = precut(*regular_box((5, 4, 6)), ALL.precut, surface=Surface(vertices, faces))
    half, points = half_of(result, "positive")
    with pytest.raises(InputError, match=r"bulges by .* mm.*Set halve.rests_on=as_it_was"):
        halve(half, points, with_params())
    standing = halve(half, points, with_params(rests_on="as_it_was"))
    assert standing.surface.volume_m3 == pytest.approx(half.volume_m3, rel=1e-12)
    assert metrics(standing)["cut_face_bulge_m"] > 1e-3


def test_an_open_half_is_refused(first_cut):
    half, points = half_of(first_cut, "positive")
    with pytest.raises(InputError, match="not closed"):
        halve(Surface(half.vertices, half.faces[1:]), points, with_params())


def test_the_stage_writes_what_it_promises(tmp_path):
    result = precut(*regular_box((5, 4, 6)), ALL.precut)
    for name, frame in tables(result).items():
        write_table(tmp_path, name, frame)
    scan = ScanFile("box", "box.ply", None, "box.ply", "box.ply", "box.ply", "box.ply", "apple")
    io = StageIO(tmp_path, scan, "halve")
    found = run(io, with_params(half="negative"))
    assert io.missing() == ["halve/metrics"]
    io.publish()
    io.close()
    assert found["volume_m3"] == pytest.approx(result.negative.volume(), rel=1e-9)
    assert read_table(tmp_path, "halve/frame").shape == (4, 1)
    assert read_table(tmp_path, "halve/vertices").schema == pl.Schema({"position_m": pl.Array(pl.Float64, 3)})
