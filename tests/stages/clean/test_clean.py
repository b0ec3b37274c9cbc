"""clean as a whole: bundled sample, real scans if they are there, clouds, refusals."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from stages.clean.clean import _CleanResult, clean, metrics
from stages.clean.components import neck_warning
from stages.clean.description import CleanParams
from stages.clean.scan_file import RawScan, read_scan
from stages.runtime.errors import InputError
from stages.shared.surface import Surface, is_closed
from tests.real_data import real_file
from tests.stages.scan_shapes import SAMPLE, ball, box, default_params, without_cap

PARAMS = default_params().clean
NO_FACES = np.empty((0, 3), np.int32)


def mesh_scan(surface: Surface) -> RawScan:
    return RawScan(surface.vertices, surface.faces, "ply")


def clean_file(path: Path, params: CleanParams = PARAMS) -> _CleanResult:
    return clean(read_scan(path, max_faces=params.max_faces), params)


def assert_sound(result: _CleanResult) -> None:
    surface = result.surface
    assert is_closed(surface.faces)
    assert surface.volume_m3 > 0.0
    assert surface.vertices[:, 1].min() == pytest.approx(0.0, abs=1e-12)
    assert surface.vertices[:, 0].min() < 0.0 < surface.vertices[:, 0].max()
    assert result.displacement.moved_fraction <= PARAMS.max_displacement_fraction


def joined(*parts: Surface) -> Surface:
    offsets = np.cumsum([0] + [len(part.vertices) for part in parts[:-1]])
    return Surface(
        np.concatenate([part.vertices for part in parts]),
        np.concatenate([part.faces + start for part, start in zip(parts, offsets, strict=True)]).astype(
            np.int32
        ),
    )


def moved(surface: Surface, *offset_m: float) -> Surface:
    return Surface(surface.vertices + np.array(offset_m), surface.faces)


def test_sample_is_repaired_and_every_fault_is_in_the_table() -> None:
    result = clean_file(SAMPLE)
    assert_sound(result)
    table = {row[0]: row[1:] for row in result.log.rows}
    assert result.rung == "patched"
    assert table["drop stray pieces"][:2] == (3, 1)
    assert table["drop stray pieces"][2] == "1 small, 1 hidden inside"
    assert table["drop duplicate faces"][0] - table["drop duplicate faces"][1] == 40
    assert table["separate non-manifold edges"][:2] == (6, 0)
    assert table["fill holes"][:2] == (4, 0)
    assert table["flip faces"][0] > 100
    assert result.unit.metres_per_unit == 0.001
    measured = metrics(result, "apple")
    assert measured["warning"] is None, "one fruit of a usual size"
    assert measured["watertight"] is True
    assert 0.0 < measured["filled_area_fraction"] < 0.1


def test_sample_file_is_what_its_script_makes() -> None:
    script = SAMPLE.parent / "make_sample.py"
    spec = importlib.util.spec_from_file_location("make_sample", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vertices, faces = module.make_sample()
    stored = read_scan(SAMPLE, max_faces=PARAMS.max_faces)
    # float32 in the file: 72 mm have a spacing of 8e-6 mm.
    np.testing.assert_allclose(stored.vertices, vertices, atol=1e-5)
    np.testing.assert_array_equal(stored.faces, faces)
    assert b"SYNTHETIC" in SAMPLE.read_bytes()[:200]


def test_filled_sample_matches_the_formula_it_was_made_from() -> None:
    spec = importlib.util.spec_from_file_location("make_sample", SAMPLE.parent / "make_sample.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    unit = ball(1.0, 5)
    whole = Surface(module.apple(unit.vertices) * 1e-3, unit.faces)
    # Holes of 11, 6, 3 and 2.5 mm radius are 3 % of the area; 1 % of the volume allows 1.5 mm of error over them.
    assert clean_file(SAMPLE).surface.volume_m3 == pytest.approx(whole.volume_m3, rel=0.01)


def test_same_scan_gives_the_same_bytes() -> None:
    first, second = clean_file(SAMPLE).surface, clean_file(SAMPLE).surface
    assert first.vertices.tobytes() == second.vertices.tobytes()
    assert first.faces.tobytes() == second.faces.tobytes()


@pytest.mark.parametrize("unit, factor", [("m", 1.0), ("mm", 1000.0)])
def test_ball_keeps_its_volume_in_either_unit(unit: str, factor: float) -> None:
    sphere = ball(0.035)
    result = clean(RawScan(sphere.vertices * factor, sphere.faces, "stl"), PARAMS)
    assert_sound(result)
    assert result.rung == "intact"
    # Chords of 3 mm edges on a 35 mm radius lie 0.01 mm inside on average (0.1 % of the volume); Taubin adds less.
    assert result.surface.volume_m3 == pytest.approx(4.0 / 3.0 * np.pi * 0.035**3, rel=0.005)


def test_inside_out_ball_is_flipped() -> None:
    sphere = ball()
    result = clean(RawScan(sphere.vertices, sphere.faces[:, ::-1].copy(), "stl"), PARAMS)
    assert_sound(result)
    assert {row[0]: row[1] for row in result.log.rows}["flip faces"] == len(sphere.faces)


def test_ambiguous_unit_is_refused_and_scale_closes_it() -> None:
    sphere = ball(0.7)
    with pytest.raises(InputError, match=r"ambiguous: its largest extent is 1\.4.*clean\.unit"):
        clean(mesh_scan(sphere), PARAMS)
    result = clean(mesh_scan(sphere), PARAMS.model_copy(update={"scale": 0.05}))
    assert result.surface.vertices[:, 1].max() == pytest.approx(0.07, rel=0.01)


def test_absurd_scale_is_refused() -> None:
    with pytest.raises(InputError, match="70 m long"):
        clean(mesh_scan(ball(0.035)), PARAMS.model_copy(update={"scale": 1000.0}))


def test_missing_cap_is_filled_round() -> None:
    sphere = ball(0.035)
    result = clean(mesh_scan(without_cap(sphere, 0.030)), PARAMS)
    assert_sound(result)
    assert result.rung == "patched"
    full = 4.0 / 3.0 * np.pi * 0.035**3
    cap = np.pi * 0.005**2 * (3 * 0.035 - 0.005) / 3.0
    # A flat patch would lose the whole cap (1.4 %); a faired one must give back at least half of it.
    assert abs(result.surface.volume_m3 - full) < 0.5 * cap


def test_half_a_surface_is_refused() -> None:
    with pytest.raises(InputError, match="was not scanned"):
        clean(mesh_scan(without_cap(ball(0.035), 0.0)), PARAMS)


def test_cracked_triangles_are_welded() -> None:
    sphere = ball(0.035, 3)
    rng = np.random.default_rng(1)
    soup = sphere.corners + rng.normal(0.0, 3e-6, (len(sphere.faces), 1, 3))
    faces = np.arange(3 * len(sphere.faces), dtype=np.int32).reshape(-1, 3)
    result = clean(RawScan(soup.reshape(-1, 3), faces, "stl"), PARAMS)
    assert_sound(result)
    assert result.rung == "welded"


def test_two_patches_are_joined_by_reconstruction() -> None:
    sphere = ball(0.035)
    gap = np.abs(sphere.corners.mean(axis=1)[:, 0]) > 0.0015
    result = clean(mesh_scan(Surface(sphere.vertices, sphere.faces[gap])), PARAMS)
    assert_sound(result)
    assert result.rung == "reconstructed"
    # Poisson at a cell of half the target edge; 2 % of the volume is 0.2 mm of radius.
    assert result.surface.volume_m3 == pytest.approx(4.0 / 3.0 * np.pi * 0.035**3, rel=0.02)


def test_two_bodies_are_refused_but_a_hidden_one_is_dropped() -> None:
    sphere = ball(0.035, 3)
    with pytest.raises(InputError, match="two separate closed bodies"):
        clean(mesh_scan(joined(sphere, moved(ball(0.03, 3), 0.1, 0.0, 0.0))), PARAMS)
    result = clean(mesh_scan(joined(sphere, ball(0.03, 3))), PARAMS)
    assert result.surface.volume_m3 == pytest.approx(sphere.volume_m3, rel=0.02)
    assert {row[0]: row[3] for row in result.log.rows}["drop stray pieces"] == "0 small, 1 hidden inside"


def test_point_cloud_is_closed_and_outliers_go() -> None:
    rng = np.random.default_rng(3)
    directions = rng.normal(size=(8000, 3))
    points = 0.035 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    points = np.concatenate([points + rng.normal(0.0, 1e-4, points.shape), rng.uniform(-0.1, 0.1, (20, 3))])
    result = clean(RawScan(points, NO_FACES, "xyz"), PARAMS)
    assert_sound(result)
    assert result.rung == "reconstructed"
    assert result.surface.volume_m3 == pytest.approx(4.0 / 3.0 * np.pi * 0.035**3, rel=0.02)


def test_half_a_point_cloud_is_refused() -> None:
    rng = np.random.default_rng(3)
    directions = rng.normal(size=(6000, 3))
    directions[:, 2] = np.abs(directions[:, 2])
    points = 0.035 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    with pytest.raises(InputError, match="could not be closed"):
        clean(RawScan(points, NO_FACES, "xyz"), PARAMS)


def test_plane_is_refused() -> None:
    x, z = np.meshgrid(np.linspace(0.0, 0.1, 20), np.linspace(0.0, 0.1, 20))
    points = np.column_stack([x.ravel(), np.zeros(400), z.ravel()])
    corner = (np.arange(19)[:, None] * 20 + np.arange(19)).ravel()
    faces = np.concatenate([corner[:, None] + [0, 1, 20], corner[:, None] + [1, 21, 20]]).astype(np.int32)
    for scan in (RawScan(points, faces, "ply"), RawScan(points, NO_FACES, "xyz")):
        with pytest.raises(InputError, match="flat"):
            clean(scan, PARAMS)


def test_tangle_and_too_fine_a_target_are_refused_before_work_starts() -> None:
    rng = np.random.default_rng(0)
    faces = rng.integers(0, 500, (2000, 3)).astype(np.int32)
    with pytest.raises(InputError, match="tangled"):
        clean(RawScan(rng.uniform(0.0, 0.1, (500, 3)), faces, "ply"), PARAMS)
    with pytest.raises(InputError, match=r"Raise clean\.target_edge_m"):
        clean(mesh_scan(ball(0.1, 3)), PARAMS.model_copy(update={"target_edge_m": 0.0003}))


def test_surface_that_moves_too_far_is_refused() -> None:
    # Smoothing rounds the corners of a 20 mm cube by about a millimetre, 3 % of its diagonal of 35 mm.
    strict = PARAMS.model_copy(update={"max_displacement_fraction": 0.005, "smooth_iterations": 50})
    with pytest.raises(InputError, match="moved by"):
        clean(mesh_scan(box((0.02, 0.02, 0.02))), strict)


REAL = {
    "011_banana_google16k_nontextured.ply": ("intact", 1.0),
    "013_apple_google16k_nontextured.ply": ("intact", 1.0),
    "014_lemon_google16k_nontextured.ply": ("intact", 1.0),
    "016_pear_google16k_nontextured.ply": ("patched", 1.0),
    "hubmap_banana_full.stl": ("intact", 0.001),
    "sliceit_cucumber.stl": ("intact", 0.001),
    "sliceit_tomato.stl": ("intact", 0.001),
    "prickly_pear_case2_64_low.ply": ("patched", 0.06),
}


@pytest.mark.parametrize("name", REAL)
def test_real_scan(name: str) -> None:
    path = real_file("scans", name)
    params = PARAMS
    if name.startswith("prickly"):
        with pytest.raises(InputError, match="ambiguous"):
            clean_file(path)
        params = PARAMS.model_copy(update={"scale": 0.06})
    result = clean_file(path, params)
    assert_sound(result)
    assert (result.rung, result.unit.metres_per_unit) == REAL[name]
    assert neck_warning(result.surface) is None, "one fruit"
    notes = {row[0]: row[1:] for row in result.log.rows}
    if name == "sliceit_cucumber.stl":
        assert notes["drop stray pieces"] == (2, 1, "0 small, 1 hidden inside")
    if name == "hubmap_banana_full.stl":
        assert notes["flip faces"][0] == 3310
        assert notes["self-intersections"][:2] == (20, 0)
    if name == "016_pear_google16k_nontextured.ply":
        assert notes["count non-manifold edges"][0] == 6


def test_malformed_kinect_file_is_refused() -> None:
    path = real_file("scans", "uw_apple_kinect_header_stripped.pcd")
    with pytest.raises(InputError, match="malformed"):
        clean_file(path)
