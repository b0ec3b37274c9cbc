"""The Prefect flow: state names, retries, artifacts in the dashboard."""

import os

import pytest

from pipelines.dvc import stage as stage_module
from pipelines.dvc.pipeline_file import needed_for, read_template
from pipelines.project import Project
from pipelines.runs.flow import _fresh_at_first
from pipelines.runs.run_request import run_flow, run_request
from pipelines.runs.run_summary import RunResult
from pipelines.scans.register import Request, register_scan
from stages.runtime.files import write_bytes_atomic
from tests.pipelines.tiny_project import runs, write_scan

pytestmark = pytest.mark.usefixtures("prefect_server")


class Spectator:
    """Remembers what it was shown."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.started: list[str] = []
        self.progress: list[float] = []
        self.pictures: list[tuple[str, str]] = []
        self.edit_during_clean = False

    def wait(self, stage, message):
        pass

    def on_start(self, entry):
        self.started.append(entry.name)

    def on_progress(self, stage, fraction, message):
        self.progress.append(fraction)
        path = self.project.root / "params.yaml"
        if self.edit_during_clean:
            self.edit_during_clean = False
            text = path.read_text().replace("max_faces: 2000000", "max_faces: 1900000")
            write_bytes_atomic(path, text.encode())  # the stage may read it at this moment

    def on_picture(self, stage, path):
        self.pictures.append((stage, path.name))

    def on_finish(self, report):
        pass


def run(project: Project, scan_id: str, **choices) -> tuple[RunResult, Spectator]:
    result, spectator = RunResult(scan=scan_id), Spectator(project)
    spectator.edit_during_clean = choices.pop("edit", False)
    run_flow(project, result, spectator, force=False, verbose=False, **choices)
    return result, spectator


def task_runs(scan_id: str) -> dict[str, tuple[str, int]]:
    """Task name → (state name, number of attempts) of the newest flow run of this scan."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as client:
        flow_runs = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[scan_id])),
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        )
        newest = FlowRunFilter.model_validate({"id": {"any_": [flow_runs[0].id]}})
        return {t.name: (t.state_name, t.run_count) for t in client.read_task_runs(flow_run_filter=newest)}


def flow_state(scan_id: str) -> tuple[str, str, str]:
    """Type, name and message of the state of this scan's flow run; there must be one run."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName

    with get_client(sync_client=True) as client:
        named = FlowRunFilter(name=FlowRunFilterName(any_=[scan_id]))
        (state,) = [run.state for run in client.read_flow_runs(flow_run_filter=named)]
        return state.type.value, state.name, state.message


def artifact_keys() -> set[str]:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        response = client.request("POST", "/artifacts/filter", json={})
        return {item["key"] for item in response.json()}


def test_a_run_and_a_rerun(project, tmp_path, monkeypatch):
    register_scan(project, Request(write_scan(tmp_path, "apple_1.ply", "good pictured-clean")))
    result, spectator = run(project, "apple_1")
    assert spectator.pictures == [("clean", "live.png")] * 2
    assert not (project.scan_dir("apple_1") / "live.png").exists(), "it goes with the stage"
    assert (result.exit_code, result.error) == (0, None)
    assert spectator.started == [entry.name for entry in read_template(project.template)]
    assert spectator.progress[-1] == 1.0
    assert task_runs("apple_1") == dict.fromkeys(spectator.started, ("Completed", 1))
    numbered = [
        f"apple-1-{i:02}-{name.replace('_', '-')}" for i, name in enumerate(spectator.started, start=1)
    ]
    assert artifact_keys() == {"apple-1-00-summary", *numbered}, "the summary first, then one per stage"

    with monkeypatch.context() as patch:
        # DVC says once that all is fresh; a question per stage would cost seconds each
        patch.setattr(stage_module, "_run_dvc", lambda *arguments: pytest.fail("DVC was asked again"))
        again, _ = run(project, "apple_1")
    assert all(stage.cached for stage in again.stages)
    assert len(again.stages) == len(spectator.started)
    assert {state for state, _ in task_runs("apple_1").values()} == {"Unchanged"}
    assert runs(project) == [f"apple_1 {name}" for name in spectator.started]


def test_from_the_first_stage_that_runs_dvc_is_asked_for_each(project, tmp_path):
    scan = write_scan(tmp_path, "fig.ply")
    register_scan(project, Request(scan))
    assert run(project, "fig", target="precut")[0].error is None
    entries = needed_for("precut", read_template(project.template))
    names = [entry.name for entry in entries]
    assert names == ["clean", "tetrahedralize", "precut"]
    assert _fresh_at_first(project, "fig", entries) == set(names)
    register_scan(project, Request(scan, overrides={"tetrahedralize": {"edge_m": 0.02}}))
    assert _fresh_at_first(project, "fig", entries) == {"clean"}
    # what DVC, which looks at times and sizes, does not see is found and made again
    faces = project.scan_dir("fig") / "clean" / "faces.parquet"
    before, stat = faces.read_bytes(), faces.stat()
    faces.chmod(0o644)
    faces.write_bytes(bytes([before[0] ^ 1]) + before[1:])
    os.utime(faces, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    result, _ = run(project, "fig", target="precut")
    assert result.error is None
    assert faces.read_bytes() == before
    assert result.stages[1].outcome.value == "Completed"
    (project.scan_dir("fig") / "dvc.lock").write_text("broken: [")
    assert _fresh_at_first(project, "fig", entries) == set()


def test_bad_input_fails_once_with_its_sentence(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "pear.ply", "bad-tetrahedralize")))
    result, _ = run(project, "pear")
    assert result.exit_code == 2
    assert result.error == "tetrahedralize: the scan says bad. It must say good. Change it."
    assert [stage.name for stage in result.stages] == ["clean", "ingest"]
    done = ("Completed", 1)
    assert task_runs("pear") == {"clean": done, "ingest": done, "tetrahedralize": ("Refused", 1)}
    assert flow_state("pear") == ("FAILED", "Refused", result.error)


def test_a_motion_that_is_not_certified_is_no_green_run(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "quince.ply", "good refused-export")))
    result, _ = run(project, "quince")
    assert (result.exit_code, result.error) == (0, None), "every stage ran"
    assert [stage.name for stage in result.stages] == [e.name for e in read_template(project.template)]
    assert flow_state("quince") == ("FAILED", "Refused", "Refused: 1 of 2 checks failed.")
    states = {name: state for name, (state, _) in task_runs("quince").items()}
    assert states.pop("export") == "Refused" and set(states.values()) == {"Completed"}
    again, _ = run(project, "quince")
    assert again.error is None and all(stage.cached for stage in again.stages)


def test_a_cut_that_did_not_happen_is_no_green_run(project, tmp_path):
    """The stage has its results, so later stages run; its state, the run's and the exit code tell."""
    register_scan(project, Request(write_scan(tmp_path, "medlar.ply", "good uncut-transport")))
    result, _ = run(project, "medlar")
    result.judge()
    assert (result.exit_code, result.error) == (3, None)
    assert result.in_words == "transport: The second cut did not happen."
    assert [stage.name for stage in result.stages] == [e.name for e in read_template(project.template)]
    assert flow_state("medlar") == ("FAILED", "Refused", "transport: The second cut did not happen.")
    states = {name: state for name, (state, _) in task_runs("medlar").items()}
    assert states.pop("transport") == "Completed, refused" and set(states.values()) == {"Completed"}


def test_new_scan_that_is_refused_is_not_kept(project, tmp_path):
    result = RunResult()
    request = Request(write_scan(tmp_path, "plum.ply", "bad-clean"))
    run_request(project, request, result, Spectator(project), force=False, verbose=False)
    assert (result.exit_code, result.scan) == (2, "plum")
    assert project.scan_ids() == []
    assert not list((project.root / ".dvc" / "cache").rglob("*")), "nor is a copy of it in DVC's cache"


def test_change_during_a_stage_is_retried(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "kiwi.ply", "slow-clean")))
    result, _ = run(project, "kiwi", edit=True)
    assert result.exit_code == 0, result.error
    assert task_runs("kiwi")["clean"] == ("Completed", 2)
    assert runs(project).count("kiwi clean") == 2
