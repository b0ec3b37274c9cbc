"""compare: runs side by side, also unequal ones, also earlier versions."""

import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.versions.compare import _compare_html, _compare_tables, _setting_rows, read_runs
from stages.runtime.errors import InputError
from tests.pipelines.report_scene import ROWS, make_project, make_scan


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path / "project")


def test_equal_and_unequal_runs(project, tmp_path):
    make_scan(project, "a")
    make_scan(project, "b", factor=2.0)
    make_scan(project, "c", without=("calibrate", "transport", "optimize", "export", "replay"))
    runs = read_runs(project, ["a", "b", "c"], tmp_path)
    tables = dict(_compare_tables(runs))
    rows = {row[0]: row[1:] for row in tables["Results"]}
    assert rows["optimize: reduction [%]"] == ("20", "20", "–")
    assert rows["tetrahedralize: tets"] == (str(ROWS),) * 3
    assert all(len(row) == 4 for table in tables.values() for row in table)
    html = _compare_html(runs)
    assert html.count('class="chart"') == 4
    assert "a and b and c" in html


def test_curves_of_different_clocks_are_drawn_over_each_other(project, tmp_path):
    make_scan(project, "a")
    make_scan(project, "b", factor=0.7)
    html = _compare_html(read_runs(project, ["a", "b"], tmp_path))
    assert '"span_gaps": true' in html


def test_only_settings_that_differ_are_shown(project, tmp_path):
    make_scan(project, "a")
    folder = make_scan(project, "b")
    text = (folder / "scan.yaml").read_text().replace('"frames": 4', '"frames": 9')
    (folder / "scan.yaml").write_text(text)
    runs = read_runs(project, ["a", "b"], tmp_path)
    assert _setting_rows(runs) == [("replay.frames", "4", "9")]


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", "pear"]])
def test_bad_requests(project, tmp_path, names):
    make_scan(project, "a")
    with pytest.raises(InputError):
        read_runs(project, names, tmp_path)


def git(project, *words):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", "-C", str(project.root), *identity, *words]
    subprocess.run(command, check=True, capture_output=True)


def test_an_earlier_version_by_git_revision(project, tmp_path):
    folder = make_scan(project, "a")
    git(project, "init", "--quiet")
    git(
        project,
        "add",
        "params.yaml",
        "pipelines",
        "data/scans/a/scan.yaml",
        "data/scans/a/optimize/metrics.json",
    )
    git(project, "commit", "--quiet", "-m", "first")
    metrics = folder / "optimize/metrics.json"
    metrics.write_text(metrics.read_text().replace('"reduction": 0.2', '"reduction": 0.3'))
    before = metrics.read_text()
    runs = read_runs(project, ["a", "a@HEAD"], tmp_path / "scratch")
    rows = {row[0]: row[1:] for row in dict(_compare_tables(runs))["Results"]}
    assert rows["optimize: reduction [%]"] == ("30", "20")
    assert metrics.read_text() == before
    with pytest.raises(InputError, match="no revision 'nowhere'"):
        read_runs(project, ["a", "a@nowhere"], tmp_path / "scratch")
    make_scan(project, "b")
    with pytest.raises(InputError, match="is not in"):
        read_runs(project, ["a", "b@HEAD"], tmp_path / "scratch")


def test_commands(project, tmp_path, monkeypatch):
    make_scan(project, "a")
    make_scan(project, "b", without=("replay",))
    monkeypatch.chdir(project.root)
    runner = CliRunner()
    page = tmp_path / "both.html"
    result = runner.invoke(app, ["compare", "a", "b", "--html", str(page)])
    assert result.exit_code == 0, result.output
    assert "Results" in result.output
    assert "clean: volume [cm³]" in result.output
    assert page.is_file()
    assert runner.invoke(app, ["report", "a"]).exit_code == 0
    assert (project.scan_dir("a") / "report.html").is_file()
    assert runner.invoke(app, ["view", "a", "--no-open"]).exit_code == 0
    assert (project.scan_dir("a") / "viewer.html").is_file()
    result = runner.invoke(app, ["view", "b", "--no-open"])
    assert isinstance(result.exception, InputError)
    assert "no recording" in str(result.exception)
    shutil.rmtree(project.scan_dir("b"))
    assert isinstance(runner.invoke(app, ["report", "b"]).exception, InputError)
