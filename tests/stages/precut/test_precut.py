"""The stage precut: tables that keep the contract, metrics, surfaces from files, errors that lose nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import trimesh
import yaml

from disect_sim.regions import Anatomy
from stages.precut.description import PrecutParams
from stages.precut.precut import _read_cutting_surface, metrics, precut, precut_picture, tables
from stages.runtime.artifacts import read_metrics, read_table, write_table
from stages.runtime.catalogue import artifacts_of
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from stages.shared.anatomy import anatomy_frames
from stages.shared.cut import read_cut_mesh
from stages.shared.surface import Surface
from tests.disect_sim.tet_meshes import BOX_VOLUME, regular_box, sheet

ROOT = Path(__file__).parents[3]
PARAMS = load_params(ROOT / "params.yaml").precut


def bowl(y, z):
    return 5.0 * ((y - 0.02) ** 2 + z**2) - 0.005


@pytest.fixture(scope="module")
def result():
    return precut(*regular_box((5, 4, 6)), PARAMS)


def test_metrics_tell_what_the_cut_did(result):
    found = metrics(result)
    assert found["volume_positive_m3"] == pytest.approx(BOX_VOLUME / 2, rel=1e-12)
    assert found["volume_negative_m3"] == pytest.approx(BOX_VOLUME / 2, rel=1e-12)
    assert found["cut_area_m2"] == pytest.approx(0.04 * 0.06, rel=1e-12)
    # The middle layer of 4 x 6 cells with six tets each is crossed, and nothing else.
    assert found["cut_tets"] == 4 * 6 * 6
    assert found["tets"] == 5 * 4 * 6 * 6 + found["cut_tets"]
    assert found["snapped_vertices"] == 0
    assert max(v for k, v in found.items() if k.endswith("error_fraction")) < 1e-9
    assert found["surface_springs"] == result.cut.spring_surface.sum()


def test_tables_are_all_the_catalogue_promises_and_give_the_cut_mesh_back(result, tmp_path):
    written = tables(result)
    assert set(written) == {a.name for a in artifacts_of("precut") if a.kind == "table"}
    for name, frame in written.items():
        write_table(tmp_path, name, frame)
    again = read_cut_mesh(lambda name: read_table(tmp_path, name))
    virtual = read_table(tmp_path, "precut/virtual_nodes")
    for name in again.__dataclass_fields__:
        assert np.array_equal(getattr(again, name), getattr(result.cut, name)), name
    assert np.array_equal(virtual["position_m"].to_numpy(), result.cut.virtual_positions())
    for side, half in (("positive", result.positive), ("negative", result.negative)):
        vertices, faces = (
            read_table(tmp_path, f"precut/half_{side}_{part}") for part in ("vertices", "faces")
        )
        mesh = trimesh.Trimesh(vertices["position_m"].to_numpy(), faces["vertices"].to_numpy(), process=False)
        assert mesh.is_watertight
        assert mesh.volume == pytest.approx(half.volume(), rel=1e-9)


def test_normal_points_to_the_positive_side():
    tilted = PARAMS.model_copy(update={"plane_point_m": (0.0, 0.02, 0.0), "plane_normal": (2.0, 0.0, -1.0)})
    normal = precut(*regular_box((5, 4, 6)), tilted).normal
    assert np.allclose(normal, np.array([2.0, 0.0, -1.0]) / np.sqrt(5), atol=0.01)


def test_picture_shows_halves_and_springs(result):
    picture = precut_picture(result.cut, result.positive, result.negative, normal=result.normal)
    assert picture.ndim == 3 and picture.shape[2] == 3
    left, right = np.array_split(picture, 2, axis=1)
    for panel in (left, right):
        drawn = (panel < 240).any(axis=2).mean()
        assert 0.05 < drawn < 0.95


@pytest.mark.parametrize("suffix", ["stl", "ply", "obj", "off"])
def test_surface_file_of_every_format_gives_the_same_cut(tmp_path, suffix):
    vertices, faces = sheet(bowl, 20)
    path = tmp_path / f"bowl.{suffix}"
    trimesh.Trimesh(vertices, faces, process=False).export(path)
    mesh = regular_box((5, 4, 6))
    cut = precut(*mesh, PARAMS, surface=_read_cutting_surface(path)).cut
    direct = precut(*mesh, PARAMS, surface=Surface(vertices, faces)).cut
    # STL and PLY store single precision, 1e-7 of a few centimetres beside edges of 1 cm.
    assert np.array_equal(cut.tets, direct.tets)
    assert np.allclose(cut.virtual_coordinate, direct.virtual_coordinate, atol=1e-5)
    # The volume above the bowl, less the chords of 1 cm tets.
    above = BOX_VOLUME / 2 - (5.0 * (0.02**2 + 0.03**2) / 3 - 0.005) * 0.04 * 0.06
    assert cut.material_volume(1) == pytest.approx(above, rel=0.01)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("surface.ply", None, "can't be read"),
        ("surface.ply", b"", "can't be parsed|no triangles"),
        ("surface.stl", b"this is not a mesh", "can't be parsed|no triangles"),
        ("surface.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\n", "can't be parsed|no triangles"),
        ("surface.obj", b"v nan 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", "not finite"),
        ("surface.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", "can't be parsed|no triangles|not finite"),
        ("surface.docx", b"", "must be a mesh file"),
    ],
)
def test_bad_surface_files_are_refused(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        _read_cutting_surface(tmp_path / name)


def make_project(folder, precut_section):
    """A project with one scan whose first two stages are done: the box as a tet mesh."""
    for name in ("stages", "disect_sim", "pipelines"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "params.yaml", folder)
    scan = folder / "data" / "scans" / "box"
    scan.mkdir(parents=True)
    shutil.copy(folder / "pipelines" / "dvc" / "scan.dvc.yaml", scan / "dvc.yaml")
    (scan / "box.ply").write_text("raw scan, not read by precut")
    write_scan_file(scan, precut_section)
    nodes, tets = regular_box((5, 4, 6))
    position = pl.DataFrame([pl.Series("position_m", nodes, pl.Array(pl.Float64, 3))])
    write_table(scan, "tetrahedralize/nodes", position)
    for name, frame in anatomy_frames(Anatomy(), "clean").items():
        write_table(scan, name, frame)
    plain = {
        name: np.ones(len(tets))
        for name in ("volume_m3", "radius_ratio", "min_altitude_m", "min_edge_m", "max_edge_m")
    }
    table = pl.DataFrame([pl.Series("nodes", tets, pl.Array(pl.Int32, 4))]).with_columns(
        **{name: pl.Series(values) for name, values in plain.items()}
    )
    write_table(scan, "tetrahedralize/tets", table)
    return scan


def write_scan_file(scan, precut_section):
    content = {"id": "box", "scan": "box.ply", "log": None, "material": "apple", "precut": precut_section}
    content["cut_surface"] = precut_section.get("surface_file") or "box.ply"
    (scan / "scan.yaml").write_text(yaml.safe_dump(content))


def run_precut(scan):
    return subprocess.run(
        [sys.executable, "-m", "stages", "precut", str(scan)],
        cwd=scan.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


def contents(scan):
    return {path.name: path.read_bytes() for path in sorted((scan / "precut").iterdir())}


def test_stage_writes_everything_and_a_failing_rerun_changes_nothing(tmp_path):
    scan = make_project(tmp_path, {})
    done = run_precut(scan)
    assert done.returncode == 0, done.stderr
    before = contents(scan)
    assert set(before) == {Path(a.path).name for a in artifacts_of("precut")}
    assert read_metrics(scan / "precut" / "metrics.json")["springs"] > 0

    write_scan_file(scan, {"plane_point_m": [1.0, 0.0, 0.0]})
    missed = run_precut(scan)
    assert missed.returncode == 2
    assert "misses the body" in missed.stderr
    assert "Traceback" not in missed.stderr
    assert contents(scan) == before

    write_scan_file(scan, {"surface_file": "bowl.stl"})
    trimesh.Trimesh(*sheet(bowl, 20), process=False).export(scan / "bowl.stl")
    curved = run_precut(scan)
    assert curved.returncode == 0, curved.stderr
    assert contents(scan)["springs.parquet"] != before["springs.parquet"]

    write_scan_file(scan, {})
    assert run_precut(scan).returncode == 0
    # Same input, same bytes; the picture too, as it is drawn by the same software renderer.
    assert contents(scan) == before


def test_params_have_no_defaults_of_their_own():
    with pytest.raises(ValueError, match="Field required"):
        PrecutParams()
