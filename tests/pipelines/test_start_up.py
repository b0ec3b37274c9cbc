"""What is refused at once starts neither Prefect nor DVC nor the simulator: seconds are in benchmarks, modules here."""

import json
import subprocess
import sys

import pytest

from tests.pipelines.tiny_project import environment, make_tiny_project, write_scan

HEAVY = ("prefect", "dvc", "torch", "warp", "open3d", "scipy", "matplotlib")
PROGRAM = f"""
import json, sys
sys.argv = ["scan2cut", *json.loads(sys.stdin.read())]
from pipelines.cli.main import main
code = 0
try:
    main()
except SystemExit as leaving:
    code = leaving.code
print("\\n" + json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """One for all: what is refused changes nothing."""
    made = make_tiny_project(tmp_path_factory.mktemp("project"))
    for name in ("picture.jpeg", "apple.ply"):
        write_scan(made.root, name, "good")
    return made


def imported_by(project, *arguments: str) -> tuple[int, list[str], str]:
    """Exit code, the heavy modules that the command imported, and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(arguments),
        cwd=project.root,
        env=environment(project),
        capture_output=True,
        text=True,
        check=True,
    )
    code, heavy = json.loads(done.stdout.splitlines()[-1])
    return code, heavy, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--help"], 0, "Usage"),
        (["run", "nothing.ply"], 2, "not a readable file"),
        (["run", "picture.jpeg"], 2, "picture.jpeg has the suffix '.jpeg'. It must be one of .ply"),
        (["run", "apple.ply", "--set", "clean.max_facets=3"], 2, "max_facets"),
        (["calibrate", "nobody"], 2, "not a readable file"),
        (["status", "nobody"], 2, "There is no scan 'nobody'"),
        (["report", "nobody"], 2, "There is no scan 'nobody'"),
        (["reproduce", "nobody"], 2, "There is no scan 'nobody'"),
        (["batch", "nobody"], 2, "nobody is neither a registered scan nor a file"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_refusal_imports_nothing_heavy(project, arguments, code, words):
    found_code, heavy, said = imported_by(project, *arguments)
    assert (found_code, heavy) == (code, [])
    assert words.replace(" ", "") in "".join(said.split())
    assert project.scan_ids() == []
