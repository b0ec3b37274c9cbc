"""Bounds, addresses, secrets, summaries: the parts of operation that need neither DVC nor Prefect's server."""

import ast
import re
import socket
from pathlib import Path

import pytest

from pipelines.dvc.commands import redact
from pipelines.dvc.stage import Outcome, StageReport
from pipelines.many import batch as capacity_module
from pipelines.many.batch import _share_cores, batch_requests, capacity
from pipelines.report.scan_data import ScanData
from pipelines.report.sections.decision import limits
from pipelines.runs import run_request as run_request_module
from pipelines.runs.dashboard import (
    CLIENT_AUTH,
    SERVER_AUTH,
    _server_environment,
    serve_dashboard,
    use_running_dashboard,
)
from pipelines.runs.deployment import _register_requested, in_inbox
from pipelines.runs.progress_lines import ProgressLines
from pipelines.runs.run_request import run_request
from pipelines.runs.run_summary import RunResult, headlines, summary
from pipelines.scans.register import Request, register_scan, reject_from_outside
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from tests.pipelines.tiny_project import write_scan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("cores", "free_gb", "wanted", "scans", "reason"),
    [
        (2, 64.0, None, 2, "cores"),
        (16, 64.0, None, 4, "SQLite"),
        (16, 5.0, None, 2, "memory"),
        (16, 0.1, None, 1, "memory"),
        (2, 64.0, 8, 8, "--workers"),
        (2, 5.0, 8, 2, "memory"),
    ],
)
def test_scans_at_once_are_bounded_by_cores_and_memory(monkeypatch, cores, free_gb, wanted, scans, reason):
    monkeypatch.delenv(capacity_module.DATABASE_VARIABLE, raising=False)
    monkeypatch.setattr(capacity_module, "cores_given", lambda: cores)
    monkeypatch.setattr(capacity_module, "_free_memory_gb", lambda: free_gb)
    bound = capacity(2.0, wanted)
    assert bound.scans == scans
    assert reason in bound.reason


def test_postgresql_lifts_the_bound_of_sqlite(monkeypatch):
    monkeypatch.setattr(capacity_module, "cores_given", lambda: 16)
    monkeypatch.setattr(capacity_module, "_free_memory_gb", lambda: 64.0)
    monkeypatch.setenv(capacity_module.DATABASE_VARIABLE, "postgresql+asyncpg://host/prefect")
    assert capacity(2.0).scans == 16


def test_memory_of_a_container_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(capacity_module, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("3000000000\n")
    (tmp_path / "memory.current").write_text("1000000000\n")
    assert capacity_module._free_memory_gb() <= 2.0
    (tmp_path / "memory.max").write_text("max\n")
    assert capacity_module._free_memory_gb() > 0.0


@pytest.mark.parametrize(
    ("memory_gb", "workers"), [(0.0, None), (-1.0, 2), (2.0, 0), (float("nan"), None), (float("inf"), 1)]
)
def test_senseless_bounds_are_refused(memory_gb, workers):
    with pytest.raises(InputError):
        capacity(memory_gb, workers)


def test_threads_of_libraries_share_the_cores(monkeypatch):
    monkeypatch.setattr(capacity_module, "cores_given", lambda: 8)
    for variable in capacity_module._SHARED_VARIABLES:
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    _share_cores(4)
    assert {capacity_module.os.environ[name] for name in capacity_module._SHARED_VARIABLES} == {"2"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.9"])
def test_this_machine_needs_no_password_but_its_own_pages(host):
    found = _server_environment(host, 4200, {})
    assert found["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] == "true"
    assert "*" not in found["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"]
    assert "http://127.0.0.1:4200" in found["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"].split(",")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "lab-server"])
@pytest.mark.parametrize("auth", [None, "", "admin", "admin:short", ":long-enough-password"])
def test_a_wider_address_without_a_good_auth_string_is_refused(host, auth):
    with pytest.raises(InputError, match=SERVER_AUTH) as caught:
        _server_environment(host, 4200, {} if auth is None else {SERVER_AUTH: auth})
    assert not auth or auth not in str(caught.value), "the sentence does not repeat the secret"


def test_a_wider_address_with_an_auth_string_gets_csrf_protection(monkeypatch, tmp_path):
    from pipelines.project import Project

    auth = "admin:correct-horse-battery"
    found = _server_environment("0.0.0.0", 4200, {SERVER_AUTH: auth})
    assert found["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] == "true"
    monkeypatch.setenv(SERVER_AUTH, auth)
    monkeypatch.setenv(CLIENT_AUTH, "")
    monkeypatch.delenv(CLIENT_AUTH)
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
    use_running_dashboard(Project(tmp_path))
    assert capacity_module.os.environ[CLIENT_AUTH] == auth, "runs of the same shell can log in"


def test_secrets_do_not_reach_a_log(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv(SERVER_AUTH, "admin:correct-horse")
    monkeypatch.setenv("GITHUB_TOKEN", "abc")
    line = redact("s3 wJalrXUtnFEMI; login correct-horse; s3://key:pass@host/x https://host/y abc")
    assert line == "s3 ***; login ***; s3://***@host/x https://host/y abc"


@pytest.mark.parametrize(
    "name", ["../secret.ply", "/etc/passwd", "a/../../x.ply", "", ".", "link.ply", "loop.ply", "a\0b.ply"]
)
def test_runs_from_outside_take_files_from_the_inbox_only(project, tmp_path, name):
    project.inbox_dir.mkdir(parents=True)
    (project.inbox_dir / "link.ply").symlink_to(write_scan(tmp_path, "secret.ply"))
    (project.inbox_dir / "loop.ply").symlink_to("loop.ply")
    with pytest.raises(InputError, match="only read files there"):
        in_inbox(project, name)


def test_a_requested_scan_is_a_file_of_the_inbox_or_a_known_id(project):
    project.inbox_dir.mkdir(parents=True)
    write_scan(project.inbox_dir, "apple.ply")
    write_scan(project.inbox_dir, "cut.json", "log")
    assert _register_requested(project, "apple.ply", "cut.json", "potato", {}) == "apple"
    assert _register_requested(project, "apple", None, None, {"clean": {"unit": "mm"}}) == "apple"
    text = (project.scan_dir("apple") / "scan.yaml").read_text()
    assert "material: potato" in text and "unit: mm" in text and "log: log.json" in text


OUTSIDE = {
    "optimize.max_speed_m_s": 2.0,
    "optimize.max_acceleration_along_m_s2": 50.0,
    "optimize.final_height_m": 0.0,
    "export.max_deflection_m": 0.05,
    "export.min_board_clearance_m": 0.0,
    "arm.robot": "fr3",
    "cut.speed_m_s": 1.0,
    "cut.knife": "slicing",
    "cut.board_clearance_m": 0.0,
    "cut.force_limit_n": 1e6,
    "ingest.allow_pickle": True,
    "clean.max_bytes": 10**12,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_request_from_outside_sets_a_limit(name):
    section, _, key = name.partition(".")
    assert hasattr(getattr(load_params(ROOT / "params.yaml"), section), key), "the parameter exists"
    with pytest.raises(InputError, match=re.escape(name)):
        reject_from_outside({section: {key: OUTSIDE[name]}}, "The request")


def test_a_request_that_sets_a_limit_changes_nothing(project):
    project.inbox_dir.mkdir(parents=True)
    write_scan(project.inbox_dir, "apple.ply")
    with pytest.raises(InputError, match="can only be set on this machine"):
        _register_requested(project, "apple.ply", None, None, {"optimize": {"max_speed_m_s": 2.0}})
    assert project.scan_ids() == []


def test_a_scan_that_changes_a_limit_says_so_in_its_report(project, tmp_path):
    overrides = {"optimize": {"max_speed_m_s": 0.2}, "clean": {"unit": "mm"}}
    register_scan(project, Request(write_scan(tmp_path, "apple.ply"), overrides=overrides))
    note, table = limits(ScanData(project, "apple")).blocks
    assert note.tone == "warning"
    assert list(table.rows) == [("optimize.max_speed_m_s", "the robot's", "0.2")]
    register_scan(project, Request(tmp_path / "apple.ply", reset=True))
    (note,) = limits(ScanData(project, "apple")).blocks
    assert note.tone == "plain"


@pytest.mark.parametrize("port", [0, -1, 65536, 99999999])
def test_a_port_that_is_none_is_refused(project, port, monkeypatch):
    monkeypatch.setattr("pipelines.runs.dashboard.os.execve", lambda *_: pytest.fail("it came up"))
    said: list[str] = []
    with pytest.raises(InputError, match="from 1 to 65535"):
        serve_dashboard(project, port, say=said.append)
    assert said == [], "it does not come up"


def test_a_port_that_is_taken_is_refused(project, monkeypatch):
    monkeypatch.setattr("pipelines.runs.dashboard.os.execve", lambda *_: pytest.fail("it came up"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="Can't listen on"):
            serve_dashboard(project, taken.getsockname()[1])


def test_batch_takes_ids_and_files_with_their_logs(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    pear = write_scan(tmp_path, "pear.ply")
    log = write_scan(tmp_path, "pear_log.json", "log")
    known, new = batch_requests(project, ["apple", str(pear)], {"clean": {"unit": "mm"}})
    assert (known.scan_id, known.log) == ("apple", None)
    assert (new.scan, new.log, new.overrides) == (pear, log, {"clean": {"unit": "mm"}})
    with pytest.raises(InputError, match="neither a registered scan nor a file"):
        batch_requests(project, ["apple", "plum"], {})


def test_a_batch_in_which_two_files_have_one_id_is_refused_before_anything_runs(project, tmp_path):
    for folder in ("x1", "x2"):
        (tmp_path / folder).mkdir()
        write_scan(tmp_path / folder, "gala.ply", folder)
    files = [str(tmp_path / "x1" / "gala.ply"), str(tmp_path / "x2" / "gala.ply")]
    with pytest.raises(InputError, match="would both get the scan id 'gala'"):
        batch_requests(project, files, {})
    register_scan(project, Request(Path(files[0])))
    for scans in (["gala", files[1]], [files[1], "gala"], ["gala", "gala"]):
        with pytest.raises(InputError, match="would both get the scan id 'gala'"):
            batch_requests(project, scans, {})
    assert len(batch_requests(project, files[:1], {})) == 1


def test_a_run_whose_scan_was_replaced_meanwhile_ends_in_a_sentence(project, tmp_path, monkeypatch):
    scan = write_scan(tmp_path, "gala.ply", "one")
    another = write_scan(tmp_path, "another.ply", "two")

    def replace_meanwhile(*_args, **_choices):
        register_scan(project, Request(another, scan_id="gala", replace=True))

    monkeypatch.setattr(run_request_module, "run_flow", replace_meanwhile)
    bars = ProgressLines(print)
    with pytest.raises(InputError, match="was replaced by another command"):
        run_request(project, Request(scan), RunResult(), bars, force=False, verbose=False)


MOTION = {
    "mean_over": "depth",
    "reduction": 0.231,
    "reduction_over_time": 0.229,
    "reduction_over_depth": 0.231,
    "reduction_by_sawing": 0.233,
    "peak_reduction": 0.268,
    "mean_force_vertical_n": 18.8,
    "mean_force_optimized_n": 14.4,
    "confirmed_reduction": 0.206,
    "end_height_residual_m": 0.0001,
    "lateral_residual_m": 0.0,
    "unconstrained_reduction": 1.0,
}


def report(name, **metrics):
    outputs = (f"data/scans/apple/{name}/preview.png", f"data/scans/apple/{name}/metrics.json")
    return StageReport(name, Outcome.COMPLETED, 1.5, outputs, metrics, pages={"page": f"page-of-{name}"})


def test_summary_of_a_run_with_every_stage():
    reports = [
        report("clean", volume_m3=1.0),
        report("calibrate", nmae=0.0432, outcome="settled"),
        report("optimize", **MOTION),
        report(
            "export", certified=True, verdict="Certified: all 41 checks passed.", path="export/cut/certified"
        ),
    ]
    text = summary("apple", reports, "http://127.0.0.1:4200", "abc")
    assert "- **Certified: all 41 checks passed.** Files: `export/cut/certified`" in text
    assert "**Mean force over depth: 23.1 % lower**" in text
    assert "Fit of the force log: 4.3 % mean error (settled)" in text
    assert "(http://127.0.0.1:4200/runs/flow-run/abc)" in text
    assert "(http://127.0.0.1:4200/artifacts/artifact/page-of-optimize)" in text
    assert "4 stages in 6.0 s" in text


def test_the_summary_says_how_well_the_log_was_forecast_and_what_was_missed():
    fit = {"nmae": 0.04, "nmae_forecast": 0.086, "nmae_hold_last": 0.24, "nmae_next_cut": 0.09}
    fit |= {"nmae_forecast_model": 0.07, "nmae_trend": 0.3}
    fit |= {"nmae_next_repeated": 0.12, "puncture_measured_n": 18.0, "puncture_simulated_n": None}
    text = "\n".join(headlines({"calibrate": fit}))
    for part in (
        "from its beginning: 8.6 %",
        "holding the last force 24.0 %",
        "from the others: 9.0 %",
        "repeating the mean of the others: 12.0 %",
        "does not reproduce the measured puncture of 18.0 N",
    ):
        assert part in text, part


def test_summary_tolerates_stages_that_are_not_there():
    assert headlines({"clean": {}, "calibrate": {"nmae": None}}) == []
    assert "1 stages" in summary("apple", [report("clean")], "", None)


def test_a_refused_certificate_is_said_loudly():
    assert "NOT certified" in headlines({"export": {"certified": False, "verdict": "Too fast."}})[0]


def test_a_warning_of_a_stage_is_among_the_first_lines():
    lines = headlines({"clean": {"warning": "The body has a neck."}, "precut": {"warning": None}})
    assert lines == ["Warning: clean: The body has a neck."]


def test_the_summary_says_what_is_saved_confirmed_and_kept():
    text = "\n".join(headlines({"optimize": MOTION}))
    for part in (
        "23.1 % lower",
        "peak force 26.8 %",
        "over time: 22.9 %",
        "without sawing: 23.3 %",
        "at least 20.6 %",
        "end height 0.100 mm",
        "0.000 mm",
    ):
        assert part in text
    assert "100.0" not in text  # the ablation is no result
    assert "Not confirmed" in "\n".join(headlines({"optimize": {**MOTION, "confirmed_reduction": None}}))


def test_the_summary_says_how_sure_the_saving_is_and_what_that_rests_on():
    band = {
        "reduction_low": 0.121,
        "reduction_high": 0.334,
        "reduction_rests_on": "no sawing log of this fruit",
    }
    wider = {"reduction_two_cuts_low": 0.05, "reduction_two_cuts_high": 0.41, "reduction_of_descent": 0.222}
    text = "\n".join(headlines({"optimize": MOTION | band | wider}))
    assert "90 % interval of the saving: 12 to 33 %" in text
    assert "from two measured cuts with separate scale factors: 5 to 41 %" in text
    assert "Basis: no sawing log of this fruit" in text
    assert "Descent alone, without final strokes: 22.2 % lower" in text
    without = "\n".join(headlines({"optimize": MOTION | {"reduction_rests_on": "given shares"}}))
    assert "No interval of the saving. Basis: given shares" in without
    assert "between" not in "\n".join(headlines({"optimize": MOTION}))


def test_no_command_goes_through_a_shell():
    """The one shell is DVC's, for the template's fixed line; the only word in it from outside is the checked id."""
    for folder in ("pipelines", "stages", "disect_sim"):
        paths = list((ROOT / folder).rglob("*.py"))
        assert len(paths) > 10, folder
        for path in paths:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.keyword) and node.arg == "shell":
                    raise AssertionError(f"{path}: shell=")
                if isinstance(node, ast.Attribute) and node.attr in ("system", "popen", "getoutput"):
                    owner = getattr(node.value, "id", "")
                    assert owner not in ("os", "subprocess"), path
