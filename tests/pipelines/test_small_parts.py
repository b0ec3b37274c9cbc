"""Small parts of the pipeline that need neither DVC nor Prefect."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pipelines.cli import doctor
from pipelines.dvc.commands import EventsTail
from pipelines.dvc.repair import kept_outputs
from pipelines.project import Project, _quiet_environment, find_project
from pipelines.runs.dashboard import use_running_dashboard
from pipelines.scans.cuts import Place, _mesh_at
from pipelines.versions.figures_table import _to_csv, collect
from stages.runtime.errors import InputError


def test_dataset_has_one_row_per_scan_and_every_figure(tmp_path):
    for scan, stage, metrics in (
        ("apple", "clean", {"volume_m3": 1.5, "watertight": True, "list": [1, 2]}),
        ("apple", "precut", {"springs": 7}),
        ("pear", "clean", {"volume_m3": 2.5}),
    ):
        folder = tmp_path / scan / stage
        folder.mkdir(parents=True)
        (tmp_path / scan / "scan.yaml").touch()
        (folder / "metrics.json").write_text(json.dumps(metrics))
    assert _to_csv(collect(tmp_path)) == (
        "scan,clean.volume_m3,clean.watertight,precut.springs\napple,1.5,True,7\npear,2.5,,\n"
    )
    assert _to_csv([]) == "scan\n"


def test_outputs_come_back_if_the_run_fails(tmp_path):
    output = tmp_path / "clean" / "faces.parquet"
    output.parent.mkdir()
    output.write_text("old")
    with pytest.raises(RuntimeError), kept_outputs(tmp_path, "clean", [output]):
        output.unlink()
        raise RuntimeError
    assert output.read_text() == "old"
    with kept_outputs(tmp_path, "clean", [output]):
        output.unlink()
        output.write_text("new")
    assert output.read_text() == "new"
    assert not list(tmp_path.glob(".kept-*"))


def test_outputs_of_a_killed_run_come_back_at_the_next(tmp_path):
    (tmp_path / ".kept-clean" / "clean").mkdir(parents=True)
    (tmp_path / ".kept-clean" / "clean" / "faces.parquet").write_text("old")
    with kept_outputs(tmp_path, "clean", [tmp_path / "clean" / "faces.parquet"]):
        assert (tmp_path / "clean" / "faces.parquet").read_text() == "old"


def test_events_are_read_once_and_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind": "a"}\n{"kind"')
    tail = EventsTail(path)
    assert [event["kind"] for event in tail.new_events()] == ["a"]
    assert tail.new_events() == []
    path.write_text(path.read_text() + ': "b"}\n')
    assert [event["kind"] for event in tail.new_events()] == ["b"]


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def test_running_dashboard_is_found_and_a_dead_one_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "")
    project = Project(tmp_path)
    assert use_running_dashboard(project) is None
    server = HTTPServer(("127.0.0.1", 0), Healthy)
    url = f"http://127.0.0.1:{server.server_port}/api"
    project.prefect_home.mkdir()
    (project.prefect_home / "dashboard_url").write_text(url)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    assert use_running_dashboard(project) == url
    server.shutdown()
    thread.join()
    server.server_close()
    monkeypatch.setenv("PREFECT_API_URL", "")
    assert use_running_dashboard(project) is None
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
    assert use_running_dashboard(project) == "http://elsewhere/api"


def test_doctor_finds_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "")
    monkeypatch.setattr(doctor, "IMPORTS", {"json": "import json", "nothing": "import no_such_module"})
    monkeypatch.setattr(doctor, "PACKAGES", ("polars", "no-such-package"))
    found = {finding.part: finding for finding in doctor.examine(Project(tmp_path))}
    assert found["polars"].verdict == "ok"
    assert found["no-such-package"].verdict == "missing"
    assert found["import json"].verdict == "ok"
    assert "No module named 'no_such_module'" in found["import nothing"].detail
    assert found["dvc repository"].verdict == "missing"
    assert found["sample"].verdict == "missing"
    assert found["dashboard"].verdict == "optional"
    assert found["device"].verdict in ("ok", "optional")
    assert "conjugate gradients" in found["device"].detail


def test_project_is_found_from_any_folder_inside(tmp_path, monkeypatch):
    (tmp_path / "pipelines" / "dvc").mkdir(parents=True)
    (tmp_path / "pipelines" / "dvc" / "scan.dvc.yaml").touch()
    (tmp_path / "params.yaml").touch()
    inside = tmp_path / "data" / "scans"
    inside.mkdir(parents=True)
    assert find_project(inside).root == tmp_path


def test_telemetry_is_off(tmp_path):
    environment = _quiet_environment(Project(tmp_path))
    assert environment["DO_NOT_TRACK"] == environment["DVC_NO_ANALYTICS"] == "1"
    assert environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert environment["PREFECT_SERVER_UI_V2_ENABLED"] == "false"
    assert environment["PREFECT_HOME"].startswith(str(tmp_path))


def test_a_prediction_elsewhere_needs_its_mesh(tmp_path):
    assert str(Place(offset_m=0.012)) == "the whole fruit, +12 mm beside its cut plane"
    with pytest.raises(InputError, match="has no precut_half"):
        _mesh_at(tmp_path, None, Place(half=True))
