"""Rooms: one word names a stage in six places, its DVC deps cover its code, imports point one way."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from pipelines.dvc.template import read_template
from stages.runtime.catalogue import ARTIFACTS, INSTANCES, base_of
from stages.runtime.params import SECTIONS

ROOT = Path(__file__).parents[1]
ENTRIES = read_template(ROOT / "pipelines" / "dvc" / "scan.dvc.yaml")
STAGES = [entry.name for entry in ENTRIES]
PACKAGES = ("pipelines", "stages", "disect_sim")
NOT_STAGES = {"__init__", "catalogue", "params"}


def stage_modules() -> set[str]:
    return {path.stem for path in (ROOT / "stages").glob("*.py")} - NOT_STAGES


@pytest.mark.parametrize("stage", sorted({*STAGES, *SECTIONS, *stage_modules()}))
def test_one_word_six_places(stage):
    """Module, DVC stage (also the Prefect task: the flow reads the template), params, folder, test.

    An instance of a stage has the module and the test of its base, and none of its own.
    """
    assert base_of(stage) not in INSTANCES
    assert (ROOT / "stages" / f"{base_of(stage)}.py").is_file()
    assert (ROOT / "stages" / f"{stage}.py").is_file() == (stage not in INSTANCES)
    assert stage in STAGES
    assert stage in SECTIONS
    assert stage in yaml.safe_load((ROOT / "params.yaml").read_text())
    assert {a.path.split("/")[0] for a in ARTIFACTS.values() if a.producer == stage} == {stage}
    assert (ROOT / "tests" / "stages" / f"test_{base_of(stage)}.py").is_file()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_stage_command_and_params(entry):
    body = yaml.safe_load((ROOT / "pipelines" / "dvc" / "scan.dvc.yaml").read_text())["stages"][entry.name]
    option = f" --as {entry.name}" if entry.name in INSTANCES else ""
    assert body["cmd"] == f"exec python -m stages.{base_of(entry.name)} data/scans/${{id}}{option}"
    params = dict(entry.params)
    assert params["params.yaml"] == (entry.name,)
    assert entry.name in params["data/scans/${id}/scan.yaml"]
    source = (ROOT / "stages" / f"{base_of(entry.name)}.py").read_text()
    assert ("material" in params["data/scans/${id}/scan.yaml"]) or ("scan.material" not in source)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_dvc_deps_cover_all_imported_code(entry):
    """DVC does not follow imports, so a module that is imported and not listed could change unnoticed."""
    listed = [ROOT / dep for dep in entry.deps if "${" not in dep]
    assert all(path.exists() for path in listed)
    uncovered = sorted(
        str(path.relative_to(ROOT))
        for path in imported_files(ROOT / "stages" / f"{base_of(entry.name)}.py")
        if not any(path == dep or dep in path.parents for dep in listed) and not computes_nothing(path)
    )
    assert uncovered == [], f"add these to deps of {entry.name} in pipelines/dvc/scan.dvc.yaml"


def imported_files(start: Path) -> set[Path]:
    """The project's files that importing this one imports, now or inside a function."""
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            for module in modules_in(ast.parse(path.read_text())):
                waiting += files_of(module)
    return found


def modules_in(node: ast.AST) -> list[str]:
    """Imported modules, those for type checkers only left out."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return []
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [module for child in ast.iter_child_nodes(node) for module in modules_in(child)]


def files_of(module: str) -> list[Path]:
    parts = module.split(".")
    if parts[0] not in PACKAGES:
        return []
    files = []
    for length in range(1, len(parts) + 1):
        base = ROOT.joinpath(*parts[:length])
        files += [path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()]
    if len(parts) == 2 and parts[0] == "disect_sim" and not files[1:]:
        # A name of the public face, which loads its module on first use: it may be any of them.
        files += (ROOT / "disect_sim").rglob("*.py")
    return files


def computes_nothing(path: Path) -> bool:
    """A package's docstring, or the phone book of disect_sim's public face."""
    body = ast.parse(path.read_text()).body
    return path == ROOT / "disect_sim" / "__init__.py" or all(isinstance(node, ast.Expr) for node in body)


def test_every_stage_is_in_the_import_contracts():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    independent = next(c for c in contracts if c["type"] == "independence")
    assert set(independent["modules"]) == {f"stages.{base_of(stage)}" for stage in STAGES}


def test_import_contracts():
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_disect_sim_reads_no_environment_and_prints_nothing():
    for path in (ROOT / "disect_sim").rglob("*.py"):
        text = path.read_text()
        assert "os.environ" not in text, path
        assert "getenv" not in text, path


@pytest.mark.parametrize("arguments", [["--help"], ["stages"], ["validate", "nothing.parquet"]])
def test_light_commands_import_nothing_heavy(arguments):
    code = (
        "import sys; from pipelines.cli.main import app\n"
        "try: app(sys.argv[1:], standalone_mode=False)\n"
        "except Exception: pass\n"
        "heavy = {'prefect', 'dvc', 'torch', 'open3d', 'warp', 'vtk', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
