"""scan2cut probe: a first cut before any log, certified, or a sentence."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.scans.cuts import _PROBE_FOLDER, find_core, probe
from pipelines.scans.register import Request, register_scan
from stages.export.certificate import verify
from stages.runtime.errors import InputError
from tests.pipelines.tiny_project import LIGHT, ROOT, dvc, make_real_project

SCAN = ROOT / "data" / "sample" / "synthetic_apple.ply"


def test_a_scan_without_a_cut_mesh_and_an_unknown_one_are_refused(tmp_path, monkeypatch):
    project = make_real_project(tmp_path)
    scan = register_scan(project, Request(SCAN))
    with pytest.raises(InputError, match=f"run {scan} --target precut"):
        probe(project, scan, 2, lambda share, what: None)
    with pytest.raises(InputError, match="pear"):
        probe(project, "pear", 2, lambda share, what: None)
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["probe", scan, "--candidates", "0"])
    assert refused.exit_code == 2


@pytest.mark.slow
@pytest.mark.endurance
def test_the_chosen_first_cut_tells_more_than_a_vertical_one_and_is_certified(tmp_path):
    project = make_real_project(tmp_path)
    scan = register_scan(project, Request(SCAN, overrides=LIGHT))
    done = dvc(project, "repro", f"data/scans/{scan}/dvc.yaml:precut")
    assert done.returncode == 0, done.stderr
    shares = []
    found = probe(project, scan, 1, lambda share, what: shares.append(share))
    assert found["band_after_chosen"] < found["band_after_vertical"] < found["band_before"]
    assert found["certified"], found["verdict"]
    folder = project.scan_dir(scan) / _PROBE_FOLDER
    assert verify(folder / "certified").certified
    assert (folder / "probe.png").stat().st_size > 10_000 and (folder / "motion.parquet").is_file()
    assert not list(project.scan_dir(scan).glob(".scratch-*"))
    assert shares == sorted(shares)


def test_core_needs_a_cut_mesh_a_known_kind_and_a_log_per_offset(tmp_path, monkeypatch):
    project = make_real_project(tmp_path)
    scan = register_scan(project, Request(SCAN))
    log = SCAN.parent / "synthetic_apple_log.json"
    with pytest.raises(InputError, match=f"core: {scan}.*run {scan} --target precut"):
        find_core(project, scan, [log], [], [], kind=None, model_error=1.0)
    with pytest.raises(InputError, match="1 logs, 2 offsets"):
        find_core(project, scan, [log], [0.0, 9.0], [], kind=None, model_error=1.0)
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["core", scan, "--log", str(log), "--kind", "seed"])
    assert isinstance(refused.exception, InputError)
    assert "core or stone" in str(refused.exception)


@pytest.mark.slow
def test_core_reads_a_real_log_format_and_writes_its_files(tmp_path):
    project = make_real_project(tmp_path)
    scan = register_scan(project, Request(SCAN, overrides=LIGHT))
    assert dvc(project, "repro", f"data/scans/{scan}/dvc.yaml:precut").returncode == 0
    log = SCAN.parent / "synthetic_apple_log.json"
    found = find_core(project, scan, [log], [], [], kind=None, model_error=1.0)
    # The sample has no core: one log with the model error of real logs neither finds nor excludes one.
    assert 0.01 < found["probability_present"] < 0.5
    assert Path(found["picture"]).stat().st_size > 5000
    assert json.loads(Path(found["file"]).read_text())["region"]["shape"] == "sphere"
