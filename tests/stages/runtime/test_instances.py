"""Instances of a stage: the same module on other inputs, with its own folder, parameters and words."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import trimesh
import yaml

from disect_sim.cut_mesh import box_mesh
from disect_sim.regions import Anatomy, Grain, Region, Shape
from pipelines.scans.cuts import Place, _mesh_at
from stages.precut import precut as precut
from stages.runtime.artifacts import read_metadata, read_table, write_table
from stages.runtime.catalogue import ARTIFACTS, STAGES, artifacts_of, base_of
from stages.runtime.errors import InputError
from stages.runtime.params import SECTIONS, load_params
from stages.runtime.scan_file import ScanFile
from stages.runtime.stage_io import StageIO
from stages.runtime.stage_main import _checked, _for_instance
from stages.shared.anatomy import anatomy_frames
from stages.shared.cut import read_cut_mesh
from stages.tetrahedralize import tetrahedralize as tetrahedralize
from stages.tetrahedralize.mesher import TetMesh
from tests.disect_sim.tet_meshes import regular_box
from tests.stages.precut.test_precut import make_project
from tests.stages.scan_shapes import PROJECT

PARAMS = load_params(PROJECT / "params.yaml")
INSTANCES = [stage.name for stage in STAGES.values() if stage.base]
OWN_WORDS = {"scan2cut.artifact"}
"""Metadata in which an instance's tables may differ from the base's."""


@pytest.mark.parametrize("stage", INSTANCES)
def test_an_instance_has_the_bases_artifacts_and_parameters(stage):
    base = base_of(stage)
    assert stage in SECTIONS
    pairs = list(zip(artifacts_of(base), artifacts_of(stage), strict=True))
    assert pairs
    for old, new in pairs:
        assert new.name == STAGES[stage].name_of(old.name)
        assert (new.columns, new.schema, new.kind) == (old.columns, old.schema, old.kind)
    assert set(type(getattr(PARAMS, stage)).model_fields) == set(type(getattr(PARAMS, base)).model_fields)


def test_there_are_instances():
    assert INSTANCES == ["tetrahedralize_half", "precut_half"]


def test_names_are_translated_for_instances_only():
    assert STAGES["precut"].name_of("tetrahedralize/nodes") == "tetrahedralize/nodes"
    assert STAGES["precut_half"].name_of("tetrahedralize/nodes") == "tetrahedralize_half/nodes"
    assert STAGES["precut_half"].name_of("precut/springs") == "precut_half/springs"
    assert STAGES["tetrahedralize_half"].name_of("clean/faces") == "halve/faces"
    assert STAGES["precut_half"].name_of("precut_half/metrics") == "precut_half/metrics"


def run(scan, stage):
    return subprocess.run(
        [sys.executable, "-m", "stages", stage, str(scan)],
        cwd=scan.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


def assert_same_artifacts(scan, stage):
    """Tables, metrics and pictures of the instance are those of its base; only names and input hashes differ."""
    for old in STAGES[base_of(stage)].artifacts:
        new = ARTIFACTS[STAGES[stage].name_of(old.name)]
        if old.kind != "table":
            assert (scan / new.path).read_bytes() == (scan / old.path).read_bytes(), new.name
            continue
        assert read_table(scan, new.name).equals(read_table(scan, old.name)), new.name
        ours, theirs = (read_metadata(scan / a.path) for a in (new, old))
        # Polars' own copy of the schema lies beside ours.
        differing = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
        assert differing == OWN_WORDS, new.name


def run_in_process(scan_dir, module, stage):
    """Run a stage or an instance of it as its main would, without the process around it."""
    scan = ScanFile("box", "box.ply", None, "box.ply", "box.ply", "box.ply", "box.ply", "apple")
    io = StageIO(scan_dir, scan, stage)
    io.write_metrics(f"{stage}/metrics", module.run(io, getattr(PARAMS, base_of(stage))))
    assert io.missing() == []
    io.publish()
    io.close()


def test_precut_as_an_instance_writes_the_same_on_the_same_body(tmp_path):
    nodes, tets = regular_box((5, 4, 6))
    ones = [pl.Series(c.name, np.ones(len(tets))) for c in ARTIFACTS["tetrahedralize/tets"].columns[1:]]
    for stage in ("tetrahedralize", "tetrahedralize_half"):
        position = pl.Series("position_m", nodes, pl.Array(pl.Float64, 3))
        corners = pl.Series("nodes", tets, pl.Array(pl.Int32, 4))
        write_table(tmp_path, f"{stage}/nodes", pl.DataFrame([position]))
        write_table(tmp_path, f"{stage}/tets", pl.DataFrame([corners, *ones]))
    for stage in ("clean", "halve"):
        for name, frame in anatomy_frames(Anatomy(), stage).items():
            write_table(tmp_path, name, frame)
    for stage in ("precut", "precut_half"):
        run_in_process(tmp_path, precut, stage)
    assert_same_artifacts(tmp_path, "precut_half")
    first, second = (
        read_cut_mesh(lambda name: read_table(tmp_path, name), s) for s in ("precut", "precut_half")
    )
    assert np.array_equal(first.spring_area, second.spring_area)


def write_body(folder: Path, stage: str, surface: trimesh.Trimesh) -> None:
    vertices = pl.Series("position_m", surface.vertices, pl.Array(pl.Float64, 3))
    faces = pl.Series("vertices", surface.faces, pl.Array(pl.Int32, 3))
    write_table(folder, f"{stage}/vertices", pl.DataFrame([vertices]))
    write_table(folder, f"{stage}/faces", pl.DataFrame([faces]))


def test_tetrahedralize_as_an_instance_writes_the_same_on_the_same_body(tmp_path, monkeypatch):
    """A regular mesh stands in for the mesher, which takes seconds."""
    low, high = (-0.02, 0.0, -0.02), (0.02, 0.03, 0.02)
    monkeypatch.setattr(
        tetrahedralize, "mesh_inside", lambda *_args, **_options: TetMesh(*box_mesh(low, high, (4, 3, 4)))
    )
    surface = trimesh.creation.box(bounds=[low, high])
    for stage in ("clean", "halve"):
        write_body(tmp_path, stage, surface)
    for stage in ("tetrahedralize", "tetrahedralize_half"):
        run_in_process(tmp_path, tetrahedralize, stage)
    assert_same_artifacts(tmp_path, "tetrahedralize_half")


@pytest.mark.slow
@pytest.mark.ci
def test_an_instance_as_dvc_runs_it(tmp_path):
    scan = make_project(tmp_path, {})
    for name in ("nodes", "tets"):
        frame = read_table(scan, f"tetrahedralize/{name}")
        write_table(scan, f"tetrahedralize_half/{name}", frame)
    for name, frame in anatomy_frames(Anatomy(), "halve").items():
        write_table(scan, name, frame)
    done = run(scan, "precut_half")
    assert done.returncode == 0, done.stderr
    assert not (scan / "precut").exists()
    content = yaml.safe_load((scan / "scan.yaml").read_text())
    (scan / "scan.yaml").write_text(
        yaml.safe_dump({**content, "precut_half": {"plane_point_m": [1.0, 0.0, 0.0]}})
    )
    missed = run(scan, "precut_half")
    assert missed.returncode == 2
    assert missed.stderr.startswith("precut_half:")
    assert "precut." not in missed.stderr
    metrics = json.loads((scan / "precut_half" / "metrics.json").read_text())
    assert metrics["springs"] > 0, "a refused run leaves the older artifacts"
    (scan / "scan.yaml").write_text(yaml.safe_dump({**content, "precut_half": {"surface_file": "bowl.stl"}}))
    assert "precut_half.surface_file is 'bowl.stl', but" in run(scan, "precut_half").stderr


@pytest.mark.parametrize("arguments", [[], ["precut"], ["precut", "data/scans/box", "more"]])
def test_wrong_arguments_are_refused_with_the_usage(arguments):
    with pytest.raises(InputError, match="Usage: python -m stages STAGE"):
        _checked(arguments)


def test_an_unknown_stage_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"'carve' is not a stage. It must be one of clean, .*precut_half"):
        _checked(["carve", "data/scans/box"])


def test_the_remedy_names_the_instances_parameter():
    """A sentence of the base says tetrahedralize.edge_m; the instance must say its own."""
    sentence = "Lower tetrahedralize.edge_m. Run the stage tetrahedralize again. tetrahedralize: no."
    assert _for_instance("tetrahedralize", sentence) == sentence
    assert _for_instance("tetrahedralize_half", sentence) == (
        "Lower tetrahedralize_half.edge_m. Run the stage tetrahedralize again. tetrahedralize_half: no."
    )


def test_a_plane_beside_the_cut_takes_regions_and_grain_along(tmp_path, monkeypatch):
    """The body is moved to the plane, and everything inside it too; a regular mesh stands in for the mesher."""
    low, high = np.array([-0.02, 0.0, -0.02]), np.array([0.02, 0.03, 0.02])
    moved = [-0.005, 0.0, 0.0]
    monkeypatch.setattr(
        tetrahedralize,
        "mesh_inside",
        lambda *_, **__: TetMesh(*box_mesh(low + moved, high + moved, (4, 3, 4))),
    )
    write_body(tmp_path, "clean", trimesh.creation.box(bounds=[low, high]))
    stone = Region("stone", Shape.primitive("ellipsoid", np.eye(4), [0.006] * 3))
    grain = Grain(np.array([0.002, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]), np.array([1.0, 1.5, 1.0]))
    for name, frame in anatomy_frames(Anatomy((stone,), grain), "clean").items():
        write_table(tmp_path, name, frame)
    nodes = tmp_path / ARTIFACTS["precut/nodes"].path
    nodes.parent.mkdir(parents=True)
    nodes.touch()
    mesh = _mesh_at(tmp_path, PARAMS, Place(offset_m=0.005))
    assert mesh.anatomy.regions[0].shape.frame[:3, 3] == pytest.approx(moved)
    assert mesh.anatomy.grain.point == pytest.approx([-0.003, 0.0, 0.0])
