"""scan2cut verify and scan2cut executed, as someone types them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from stages.export.export import export
from stages.export.export_files import Chain
from tests.stages.synthetic_cut import PARAMS, body_tables, motion_table, parting_at_end


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    motion = motion_table(duration=1.0)
    place = tmp_path_factory.mktemp("export") / "cut"
    short = PARAMS.changed(dwell_s=0.1)
    chain = Chain({"scan.ply": "0" * 64}, ())
    parting = parting_at_end(motion)
    made = export(
        place,
        motion,
        body_tables(),
        parting,
        chain,
        short,
        knife="kitchen",
        scan_id="apple",
        force_calibrated=True,
    )
    assert made.certificate.certified, made.certificate.verdict
    return made.folder


def test_verify_needs_no_project_and_tells_by_its_exit_code(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = CliRunner().invoke(app, ["verify", str(folder)])
    assert good.exit_code == 0 and good.output.startswith("Certified: ")
    as_json = CliRunner().invoke(app, ["verify", str(folder), "--json"])
    assert json.loads(as_json.stdout)["certified"] is True
    (folder / "CHECKLIST.md").write_text("all is well\n")
    bad = CliRunner().invoke(app, ["verify", str(folder)])
    assert bad.exit_code == 1
    assert "check 7, sha256 of the sibling files: no (CHECKLIST.md)" in bad.output
    assert "Refused: 2 of " in bad.output
