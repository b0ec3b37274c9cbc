"""The layout: a stage is a folder, one word names it everywhere, imports point one way, the template is current."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from pipelines.dvc.template_writer import _RUNTIME, _code_of, _imported_files, _template_text
from pipelines.project import TEMPLATE
from stages.runtime.catalogue import ARTIFACTS, STAGES
from stages.runtime.params import SECTIONS

ROOT = Path(__file__).parents[1]
NOT_STAGES = {"runtime", "shared"}
"""Folders of stages/ beside the stages."""
WITH_CODE = [stage.name for stage in STAGES.values() if not stage.base]


def test_every_folder_of_stages_is_a_stage():
    folders = {path.parent.name for path in (ROOT / "stages").glob("*/__init__.py")}
    assert folders - NOT_STAGES == set(STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_one_word_everywhere(stage):
    """Folder, section of params.yaml, output folder, DVC stage (also the Prefect task), tests."""
    assert stage in SECTIONS
    assert stage in yaml.safe_load((ROOT / "params.yaml").read_text())
    assert {a.path.split("/")[0] for a in ARTIFACTS.values() if a.producer == stage} == {stage}
    assert stage in yaml.safe_load((ROOT / TEMPLATE).read_text())["stages"]
    tests = list((ROOT / "tests" / "stages" / STAGES[stage].code).glob("test_*.py"))
    assert tests, f"tests/stages/{STAGES[stage].code} has no test"


@pytest.mark.parametrize("stage", WITH_CODE)
def test_a_stages_folder_is_complete(stage):
    for part in ("description", stage):
        assert (ROOT / "stages" / stage / f"{part}.py").is_file()
    kinds = [artifact.kind for artifact in STAGES[stage].artifacts]
    assert kinds.count("metrics") == 1 and kinds.count("picture") == 1


def test_template_is_current():
    written = (ROOT / TEMPLATE).read_text(encoding="utf-8")
    assert written == _template_text(ROOT), "it is old: run `scan2cut dev pipeline`"


@pytest.mark.parametrize("stage", WITH_CODE)
def test_a_stage_imports_no_other_stage(stage):
    others = [ROOT / "stages" / other for other in STAGES if other != stage]
    for path in (ROOT / "stages" / stage).rglob("*.py"):
        wrong = [f for f in _imported_files(ROOT, path) if any(f.is_relative_to(other) for other in others)]
        assert wrong == [], f"{path}: stages meet in artifacts; what two share belongs in stages/shared"


@pytest.mark.parametrize("folder", sorted(NOT_STAGES))
def test_runtime_and_shared_science_know_no_stage(folder):
    paths = list((ROOT / "stages" / folder).rglob("*.py"))
    assert paths
    for path in paths:
        wrong = [
            found
            for found in _imported_files(ROOT, path)
            if found.is_relative_to(ROOT / "stages") and found.relative_to(ROOT / "stages").parts[0] in STAGES
        ]
        assert wrong == [], f"{path} imports a stage"


@pytest.mark.parametrize("stage", STAGES)
def test_listed_code_exists_and_leaves_the_runtime_out(stage):
    folders = [f"stages/{name}" for name in dict.fromkeys((STAGES[stage].code, stage))]
    listed = _code_of(ROOT, folders)
    assert all((ROOT / path).exists() for path in listed)
    assert not any(path.startswith(_RUNTIME) for path in listed)
    assert f"stages/{STAGES[stage].code}" in listed


@pytest.mark.parametrize("stage", WITH_CODE)
def test_material_is_tracked_where_it_is_used(stage):
    used = any("scan.material" in p.read_text() for p in (ROOT / "stages" / stage).rglob("*.py"))
    assert STAGES[stage].uses_material == used


PRODUCT = sorted(p for top in ("disect_sim", "stages", "pipelines") for p in (ROOT / top).rglob("*.py"))
LONGEST = 700
"""Lines of a module that is one idea (CONTRIBUTING.md)."""
MOST_MODULES, MOST_CRUMBS, CRUMB, MOST_NAMES = 268, 20, 40, 1630


def test_modules_are_few_and_neither_crumbs_nor_monsters():
    assert 100 < len(PRODUCT) <= MOST_MODULES
    lines = {p: len(p.read_text().splitlines()) for p in PRODUCT}
    assert {str(p): n for p, n in lines.items() if n > LONGEST} == {}
    named = [p for p in PRODUCT if p.name not in ("__init__.py", "description.py")]
    assert len([p for p in named if lines[p] < CRUMB]) <= MOST_CRUMBS


def _public_names(path: Path) -> list[str]:
    """Functions, classes and constants at module level without a leading underscore."""
    names: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return [name for name in names if not name.startswith("_")]


def test_public_names_are_few():
    assert 1000 < sum(len(_public_names(path)) for path in PRODUCT) <= MOST_NAMES, (
        "what one module uses is private"
    )


def test_a_file_name_occurs_at_most_twice():
    names = Counter(p.name for p in PRODUCT if p.name not in ("__init__.py", "description.py"))
    assert {name: count for name, count in names.items() if count > 2} == {}


def test_import_contracts():
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_disect_sim_reads_no_environment():
    paths = list((ROOT / "disect_sim").rglob("*.py"))
    assert paths
    for path in paths:
        text = path.read_text()
        assert "os.environ" not in text, path
        assert "getenv" not in text, path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--help"], "Usage"),
        (["stages"], "tetrahedralize"),
        (["validate", "nothing.parquet"], "nothing.parquet"),
    ],
)
def test_light_commands_import_nothing_heavy(arguments, says):
    code = (
        "import sys\n"
        "from pipelines.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'prefect', 'dvc', 'torch', 'open3d', 'warp', 'vtk', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert says in result.stdout + result.stderr
