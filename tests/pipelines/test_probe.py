"""scan2cut probe: a first cut before any log, certified, or a sentence."""

import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.scans.cuts import _PROBE_FOLDER, probe
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
