"""The command line: JSON, exit codes, sentences."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipelines.cli import main as main_module
from pipelines.cli import run as run_module
from pipelines.cli import show
from pipelines.cli.main import app
from pipelines.cli.show import validate_file, write_sample
from pipelines.dvc.pipeline_file import read_template
from pipelines.dvc.stage import Outcome, StageReport, bring_up_to_date
from pipelines.runs.run_summary import RunResult
from pipelines.runs.server import ServerError
from pipelines.scans.register import Request, register_scan
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping
from tests.pipelines.test_dvc_stage import entry_of
from tests.pipelines.tiny_project import environment, write_scan

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "run",
    "calibrate",
    "export",
    "status",
    "stages",
    "doctor",
    "sample",
    "validate",
    "dashboard",
    "batch",
    "watch",
    "deploy",
    "datasets",
    "push",
    "pull",
    "reproduce",
)


def scan2cut(project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipelines.cli.main", *arguments],
        cwd=project.root,
        env=environment(project),
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_every_command(project):
    text = scan2cut(project, "--help").stdout
    for command in COMMANDS:
        assert f" {command} " in text


def plain(text: str) -> str:
    """The words of a help page, without its frames and line breaks."""
    return " ".join(word for word in text.split() if not set(word) <= set("│╭╮╰╯─"))


def test_every_word_of_every_help_is_shown():
    group = typer.main.get_command(app)
    shown = plain(CliRunner().invoke(app, ["-h"]).stdout)
    for name, command in group.commands.items():
        page = plain(CliRunner().invoke(app, [name, "-h"]).stdout)
        assert plain(command.help or "") in page, name
        assert f" {name} " in shown
        for parameter in command.params:
            for text in (parameter.help, parameter.show_default):
                assert not isinstance(text, str) or plain(text) in page, (name, parameter.name)
    page = plain(CliRunner().invoke(app, ["run", "--help"]).stdout)
    for default in ("apple", "from the file name", "air* beside the log", "all stages"):
        assert f"[default: ({default})]" in page
    assert "into a certified robot motion" in shown and "--version" in shown


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"scan2cut {version('scan2cut')}\n")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("scan2cut exp", {"export"}),
        ("scan2cut export --robot f", {"fr3"}),
        ("scan2cut run x.ply --target tr", {"transport"}),
        ("scan2cut run x.ply --material ba", {"banana"}),
        ("scan2cut report ap", {"apple"}),
    ],
)
def test_the_shell_completes(project, tmp_path, line, offered):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    words = line.split(" ")
    asked = {
        "_SCAN2CUT_COMPLETE": "complete_bash",
        "COMP_WORDS": line.replace(" ", "\n"),
        "COMP_CWORD": str(len(words) - 1),
    }
    command = "import sys; sys.argv = ['scan2cut']; from pipelines.cli.main import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", command],
        cwd=project.root,
        env=environment(project) | asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(result.stdout.split()) == offered, result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "x.ply", "--target", "peel"), "--target is 'peel', which is not a stage."),
        (("watch", ".", "--target", "peel"), "--target is 'peel', which is not a stage."),
        (("export", "pear"), "There is no scan 'pear'"),
        (("export", "apple", "--robot", "ur5"), "arm.robot is 'ur5'"),
        (("run", "pear"), "pear is not a readable file"),
        (("run", "loop.ply"), "loop.ply is not a readable file"),
        (("batch", "loop.ply"), "loop.ply is neither a registered scan nor a file"),
        *(((word, 300 * "a"), "file name is too long") for word in ("batch", "watch", "validate", "verify")),
        (("run", "apple", "--set", "calibrate.shared=5"), "must be a list, e.g. [1, 2]"),
    ],
)
def test_wrong_targets_scans_robots_and_lists_are_refused_at_once(project, tmp_path, arguments, sentence):
    scan = write_scan(tmp_path, "apple.ply")
    register_scan(project, Request(scan))
    (project.root / "loop.ply").symlink_to("loop.ply")
    words = [str(scan) if word == "x.ply" else word for word in arguments]
    result = scan2cut(project, *words)
    assert result.returncode == 2 and sentence in result.stderr, result.stderr
    assert not project.prefect_home.exists(), "Prefect was not even started"


def test_run_refusal_is_one_object_and_exit_2(project):
    result = scan2cut(project, "run", "none.ply", "--json")
    assert result.returncode == 2
    assert json.loads(result.stdout) == {
        "ok": False,
        "error": "none.ply is not a readable file. Give the path of an existing file.",
        "refused": None,
        "warnings": [],
        "scan": None,
        "stages": [],
    }
    assert "Traceback" not in result.stderr


def test_run_refusal_in_words(project):
    result = scan2cut(project, "run", "none.ply")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "error: none.ply is not a readable file" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in scan2cut(project, "run", "none.ply", "--debug").stderr


def test_a_motion_without_certificate_is_not_called_done():
    refused = {"certified": False, "verdict": "Refused: it hovers."}
    stages = [
        StageReport(name, Outcome.COMPLETED, 1.0, (), m) for name, m in (("clean", {}), ("export", refused))
    ]
    assert RunResult("apple", stages=stages[:1]).in_words == "done"
    assert RunResult("apple", stages=stages).in_words == "NOT certified. Refused: it hovers."
    assert RunResult("apple", error="clean: no.", stages=stages).in_words == "clean: no."


@pytest.mark.parametrize(("options", "arm"), [(["--robot", "fr3"], {"robot": "fr3"}), ([], {})])
def test_export_takes_a_robot_and_runs_that_stage(project, tmp_path, monkeypatch, options, arm):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    asked = {}

    def run_nothing(_project, request, **choices):
        asked.update(choices, request=request())
        return RunResult("apple", error="stopped here", exit_code=2)

    monkeypatch.setattr(run_module, "run_requested", run_nothing)
    monkeypatch.chdir(project.root)
    assert CliRunner().invoke(app, ["export", "apple", *options]).exit_code == 2
    assert asked["target"] == "export" and not asked["force"]
    register_scan(project, asked["request"])
    assert read_mapping(project.scan_dir("apple") / "scan.yaml")["arm"] == arm


def test_unexpected_error_is_exit_1():
    result = RunResult()
    result.fail(ZeroDivisionError("by zero"))
    assert (result.exit_code, result.error) == (1, "ZeroDivisionError: by zero")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ServerError("Prefect's server did not start."), "error: Prefect's server did not start.\n"),
        (
            ZeroDivisionError("by zero"),
            "error: ZeroDivisionError: by zero (run with --debug for the traceback)\n",
        ),
    ],
)
def test_a_command_that_fails_has_a_type_name_only_where_it_has_no_sentence(
    monkeypatch, capsys, error, words
):
    def fail():
        raise error

    monkeypatch.setattr(main_module, "app", fail)
    monkeypatch.setattr(sys, "argv", ["scan2cut", "batch"])
    with pytest.raises(SystemExit, match="1"):
        main_module.main()
    assert capsys.readouterr().err == words


def test_stages_as_json(project):
    stages = json.loads(scan2cut(project, "stages", "--json").stdout)
    after = {s["name"]: s["after"] for s in stages}
    assert list(after)[:3] == ["clean", "ingest", "tetrahedralize"]
    assert (after["clean"], after["ingest"], after["tetrahedralize"]) == ([], [], ["clean"])
    assert "clean/faces.parquet" in stages[0]["artifacts"]


def test_status_of_nothing_and_of_an_unknown_scan(project):
    assert "No scans registered" in scan2cut(project, "status").stdout
    result = scan2cut(project, "status", "apple")
    assert result.returncode == 2
    assert "There is no scan 'apple'" in result.stderr


def test_validate_refuses_with_exit_2(project):
    result = scan2cut(project, "validate", "params.yaml")
    assert result.returncode == 2
    assert "must be an artifact" in result.stderr


def test_sample_is_copied_once_and_never_over_another_file(project, tmp_path):
    project.sample_dir.mkdir()
    (project.sample_dir / "synthetic_apple.ply").write_text("a sample")
    folder = tmp_path / "copy"
    assert scan2cut(project, "sample", str(folder)).returncode == 0
    copy = folder / "synthetic_apple.ply"
    assert copy.read_text() == "a sample"
    copy.write_text("mine")
    result = scan2cut(project, "sample", str(folder))
    assert result.returncode == 2
    assert copy.read_text() == "mine"


def test_odd_places_and_names_are_sentences(project, tmp_path):
    shutil.copytree(ROOT / "data" / "sample", project.sample_dir)
    with pytest.raises(InputError, match="Can't write to"):
        write_sample(project, Path("/proc/x"))
    result = subprocess.run(
        [sys.executable, "-m", "pipelines.cli.main", "sample", os.fsencode(tmp_path) + b"/\xff"],
        cwd=project.root,
        env=environment(project),
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0 and b"\\udcff/synthetic_apple.ply" in result.stdout, result.stderr


def test_validate_shows_no_trace_of_native_code(tmp_path, monkeypatch, capfd):
    def panics(path):
        os.write(2, b"thread '<unnamed>' panicked at parquet/footer.rs")
        raise InputError(f"{path} is damaged.")

    monkeypatch.setattr(show, "read_metadata", panics)
    (tmp_path / "faces.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="damaged"):
        validate_file(tmp_path / "faces.parquet")
    assert capfd.readouterr().err == ""


def test_validate_notices_a_changed_byte_in_place(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "apple.ply")))
    bring_up_to_date(project, "apple", entry_of(project, "clean"))
    table = project.scan_dir("apple") / "clean" / "faces.parquet"
    validate_file(table)
    content = bytearray(table.read_bytes())
    content[len(content) // 4] ^= 1
    table.unlink()
    table.write_bytes(content)
    with pytest.raises(InputError):
        validate_file(table)
    metrics = project.scan_dir("apple") / "clean" / "metrics.json"
    text = metrics.read_text()
    metrics.unlink()
    metrics.write_text(text.replace("1", "2"))
    with pytest.raises(InputError, match="has changed since clean wrote it"):
        validate_file(metrics)


@pytest.mark.slow
def test_run_prints_exactly_one_object(project, tmp_path):
    """The whole way: no server, embedded API, real subprocesses."""
    scan = write_scan(tmp_path, "apple.ply")
    names = [entry.name for entry in read_template(project.template)]
    result = scan2cut(project, "run", str(scan), "--json", "--verbose")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert list(answer) == ["ok", "error", "refused", "warnings", "scan", "stages"]
    assert (answer["ok"], answer["error"], answer["scan"]) == (True, None, "apple")
    assert [stage["name"] for stage in answer["stages"]] == names
    assert {tuple(stage) for stage in answer["stages"]} == {
        ("name", "seconds", "cached", "outputs", "metrics")
    }
    for stage in answer["stages"]:
        assert all((project.root / path).exists() for path in stage["outputs"])
        assert stage["metrics"] == json.loads((project.root / stage["outputs"][-1]).read_text())
    assert (project.root / ".prefect").is_dir(), "Prefect's database stays in the project"
    words = scan2cut(project, "run", str(scan)).stdout
    assert words.count("Unchanged") == len(names)
