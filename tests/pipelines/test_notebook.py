"""scan2cut from Python: tables, cuts, pictures; and the notebook itself."""

from pathlib import Path

import polars as pl
import pytest

import scan2cut
from pipelines.dvc.stage import bring_up_to_date
from pipelines.scans.register import Request, register_scan
from scan2cut import VIEWER_HEIGHT
from tests.pipelines.report_scene import make_project, make_scan
from tests.pipelines.test_dvc_stage import entry_of
from tests.pipelines.tiny_project import LIGHT, ROOT

PNG = b"\x89PNG"


@pytest.fixture
def scan(tmp_path, monkeypatch) -> scan2cut.Scan:
    project = make_project(tmp_path / "project")
    make_scan(project, "apple")
    monkeypatch.chdir(project.root)
    return scan2cut.Scan("apple")


def test_tables_are_typed_and_have_units(scan):
    assert scan2cut.scans() == ["apple"]
    profile = scan.table("calibrate/profile")
    assert profile.schema["measured_n"] == pl.Float64
    units = dict(scan.columns("calibrate/profile").select("column", "unit").iter_rows())
    assert list(units) == profile.columns and units["measured_n"] == "N"
    there = scan.artifacts().filter(pl.col("is_there"))["artifact"].to_list()
    assert "calibrate/profile" in there
    assert scan.metrics("optimize")["reduction"] == 0.2


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda scan: scan.table("peel/force"), "is not an artifact"),
        (lambda scan: scan.columns("clean"), "is not an artifact"),
        (lambda scan: scan2cut.Scan("pear"), "no scan 'pear'"),
        (lambda scan: scan.cut(knife={"length_m": 1}), "'knife' is not a known section"),
        (lambda scan: scan2cut.plot_force({"springs": scan.table("precut/springs")}), "requires time_s"),
    ],
)
def test_refusals_are_sentences(scan, ask, sentence):
    with pytest.raises(scan2cut.InputError, match=sentence):
        ask(scan)


def test_what_has_not_run_is_said_with_the_command(scan):
    (scan.folder / "simulate" / "force.parquet").unlink(missing_ok=True)
    with pytest.raises(scan2cut.InputError, match="scan2cut run apple --target simulate"):
        scan.table("simulate/force")


def test_pictures_show_themselves(scan, tmp_path):
    frames = scan.table("replay/frames")
    picture = scan2cut.plot_force({"optimised": frames})
    assert picture._repr_png_().startswith(PNG)
    picture.save(tmp_path / "force.png")
    assert (tmp_path / "force.png").read_bytes().startswith(PNG)
    axis = picture.figure.axes[0]
    assert list(axis.lines[0].get_ydata()) == frames["force_norm_n"].to_list()
    body = scan2cut.plot_body(scan, path=frames)
    assert body._repr_png_().startswith(PNG)
    assert "height, y [mm]" in body.figure.axes[0].get_zlabel()
    assert scan2cut.plot_body(scan, body="halve")._repr_png_() != body._repr_png_()
    page = scan2cut.view(scan)._repr_html_()
    assert page.startswith("<iframe srcdoc=") and f"height:{VIEWER_HEIGHT}px" in page
    assert "<script>" not in page, "the page is escaped as a whole"


@pytest.mark.slow
def test_the_notebook_runs(real_project, monkeypatch):
    """On a coarse mesh of the sample, with the stages up to precut."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    sample = ROOT / "data" / "sample" / "synthetic_apple.ply"
    register_scan(real_project, Request(sample, scan_id="apple", overrides=LIGHT))
    for stage in ("clean", "tetrahedralize", "precut"):
        bring_up_to_date(real_project, "apple", entry_of(real_project, stage))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "docs" / "notebook.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is stored without outputs"
    place = {"metadata": {"path": str(real_project.root)}}
    nbclient.NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=place).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in data for data in shown) == 2, "force and body"
    assert "--target calibrate" in str(shown[-1]["text/plain"])
    forces = eval(next(d["text/plain"] for d in shown if "mean_force_n" in d.get("text/plain", "")))
    slow, fast = forces["mean_force_n"]
    assert slow > 1.0 and fast > 1.0 and slow != fast
    assert not list(Path(real_project.root).glob("data/scans/apple/simulate/*")), "a cut writes nothing"
