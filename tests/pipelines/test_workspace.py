"""A workspace outside the clone: init, settings, profiles, own library, and a wheel without the clone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.dvc.pipeline_file import read_template
from pipelines.project import apply_environment, find_project
from pipelines.scans.cuts import library_cuts, remove_cut
from pipelines.scans.register import Request, register_scan
from pipelines.workspace import (
    _read_profile,
    init_workspace,
    known_knives,
    profile_overrides,
    refresh_workspace,
    resolved_knife,
)
from stages.runtime.errors import InputError
from stages.runtime.files import LIBRARY_VARIABLE, read_mapping
from stages.runtime.params import load_params
from stages.shared.library.library import FOLDER, cuts_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def workspace(tmp_path):
    return init_workspace(tmp_path / "lab")


def params(workspace):
    refresh_workspace(workspace)
    return load_params(workspace.root / "params.yaml")


def test_a_new_workspace_has_the_defaults_and_no_copy_of_the_code(workspace):
    assert read_mapping(workspace.root / "params.yaml") == read_mapping(ROOT / "params.yaml")
    assert set(yaml.safe_load((workspace.root / "settings.yaml").read_text())) == {"profiles"}
    assert find_project(workspace.root / "data" / "scans").root == workspace.root and workspace.is_workspace
    names = [entry.name for entry in read_template(workspace.template)]
    assert names[0] == "clean" and any(workspace.sample_dir.glob("*.ply"))
    copied = [p for p in (workspace.root / "stages").rglob("*.py") if not p.is_symlink()]
    assert copied == [], "code is linked"
    refresh_workspace(init_workspace(workspace.root))  # again: only what is missing


def test_settings_and_profiles_reach_the_parameters(workspace):
    (workspace.root / "settings.yaml").write_text(
        "profiles: {knife: chef, robot: fr3}\ncut: {speed_m_s: 0.04}\n"
    )
    merged = params(workspace)
    assert merged.cut.speed_m_s == 0.04 and merged.arm.robot == "fr3"
    assert merged.cut.knife["length_m"] == 0.2 and merged.cut.boundary == "guided"
    (workspace.root / "settings.yaml").write_text("profiles: {material: firm_apple}\n")
    softness = read_mapping(ROOT / "params.yaml")["cut"]["parameters"]
    assert params(workspace).cut.parameters == {**softness, "edge_toughness": 500.0}, "merged by key"
    set_too = {"cut": {"parameters": {"skin_toughness": 90.0}, "speed_m_s": 0.03}}
    assert profile_overrides(workspace, ["material/firm_apple"], set_too) == {
        "cut": {"parameters": {"edge_toughness": 500.0, "skin_toughness": 90.0}, "speed_m_s": 0.03}
    }, "--set is merged by key too"


def test_a_knife_is_one_file_chosen_by_its_name(workspace, tmp_path):
    """In the settings for all scans, or for one; what is stored is its content, so that results know it changed."""
    for text in ("profiles: {knife: chef}", "cut: {knife: chef}"):
        (workspace.root / "settings.yaml").write_text(text + "\n")
        knife = params(workspace).cut.tool
        assert (knife.name, knife.blade.length_m, knife.mass_kg) == ("chef", 0.2, 0.45)
    before = (workspace.root / "params.yaml").read_bytes()
    file = workspace.root / "profiles" / "knife" / "chef.yaml"
    file.write_text(file.read_text().replace("length_m: 0.2 ", "length_m: 0.21"))
    assert params(workspace).cut.blade.length_m == 0.21
    assert (workspace.root / "params.yaml").read_bytes() != before
    (workspace.root / "settings.yaml").write_text("profiles: {}\n")
    shutil.copy(ROOT / "data" / "sample" / "synthetic_apple.ply", tmp_path / "apple.ply")
    refresh_workspace(workspace)
    register_scan(workspace, Request(tmp_path / "apple.ply", overrides={"cut": {"knife": "chef"}}))
    stored = read_mapping(workspace.scan_dir("apple") / "scan.yaml")["cut"]["knife"]
    assert stored["name"] == "chef" and stored["length_m"] == 0.21
    own = load_params(workspace.root / "params.yaml", workspace.scan_dir("apple") / "scan.yaml")
    assert own.cut.tool.name == "chef" and own.export.cut.tool.mass_kg == 0.45
    register_scan(workspace, Request(tmp_path / "apple.ply", overrides={"cut": {"knife": "slicing"}}))
    assert read_mapping(workspace.scan_dir("apple") / "scan.yaml")["cut"]["knife"] == "slicing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "length_m: 0.2\n",
            r"chef\.yaml: height_m, spine_m, edge_m, mass_kg, com_m, tip_m or bevel_deg not given",
        ),
        ("cut: {knife: {length_m: [1]}}\n", "must be a number"),
        ("- 1\n", r"chef\.yaml"),
    ],
)
def test_a_wrong_knife_file_keeps_the_old_parameters(workspace, text, message):
    before = (workspace.root / "params.yaml").read_bytes()
    (workspace.root / "profiles" / "knife" / "chef.yaml").write_text(text)
    (workspace.root / "settings.yaml").write_text("cut: {knife: chef}\n")
    with pytest.raises(InputError, match=message):
        refresh_workspace(workspace)
    assert (workspace.root / "params.yaml").read_bytes() == before


def test_an_unknown_knife_and_a_second_one_of_the_same_name(workspace):
    with pytest.raises(InputError, match=r"'chff' is not a known knife\. Did you mean 'chef'"):
        resolved_knife(workspace.root, "chff")
    assert list(known_knives(workspace.root)) == ["folding", "kitchen", "slicing", "chef"]
    folder = workspace.root / "profiles" / "knife"
    shutil.copy(folder / "chef.yaml", folder / "kitchen.yaml")
    with pytest.raises(InputError, match="has the name of a shipped knife"):
        known_knives(workspace.root)


def test_knives_are_listed_and_shown(workspace, monkeypatch):
    monkeypatch.chdir(workspace.root)
    listed = CliRunner().invoke(app, ["knife"])
    assert listed.exit_code == 0 and "chef" in listed.stdout and "254 mm" in listed.stdout
    shown = CliRunner().invoke(app, ["knife", "show", "chef", "--json"])
    content = json.loads(shown.stdout)
    assert content["mass_kg"] == 0.45 and content["label"].startswith("chef [")
    assert Path(content["picture"]).read_bytes().startswith(b"\x89PNG")
    assert "200 mm" in CliRunner().invoke(app, ["knife", "show", "chef"]).stdout
    wrong = CliRunner().invoke(app, ["knife", "show", "spoon"])
    assert wrong.exit_code != 0 and "not a known knife" in str(wrong.exception)


@pytest.mark.parametrize("name", ["cell/bench", "knife/chef", "material/firm_apple", "robot/fr3"])
def test_every_example_of_a_profile_is_valid(workspace, name):
    kind, _, word = name.partition("/")
    (workspace.root / "settings.yaml").write_text(f"profiles: {{{kind}: {word}}}\n")
    params(workspace)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles: {cel: bench}", "Did you mean 'cell'"),
        ("profiles: {cell: bensh}", "Did you mean 'bench'"),
        ("profiles: [bench]", "must be a mapping"),
        ("clena: {unit: mm}", "Did you mean 'clean'"),
        ("clean: mm", "A section must be a mapping"),
        ("cut: {speed_ms: 0.04}", r"settings\.yaml: cut\.speed_ms is not a known parameter. Did you mean"),
        ("cut: {speed_m_s: fast}", r"settings\.yaml: cut\.speed_m_s is 'fast'"),
    ],
)
def test_wrong_settings_get_a_message_and_keep_the_old_parameters(workspace, text, message):
    before = (workspace.root / "params.yaml").read_bytes()
    (workspace.root / "settings.yaml").write_text(text + "\n")
    with pytest.raises(InputError, match=message):
        refresh_workspace(workspace)
    assert (workspace.root / "params.yaml").read_bytes() == before


def test_a_profile_sets_only_what_belongs_to_its_kind(workspace):
    path = workspace.root / "profiles" / "knife" / "chef.yaml"
    path.write_text("cut: {speed_m_s: 9}\n")
    with pytest.raises(InputError, match=r"cut\.speed_m_s can't be set here"):
        _read_profile(workspace.root, "knife", "chef")
    path.write_text("export: {tool_mass_kg: 0.1}\n")
    with pytest.raises(InputError, match="export can't be set here"):
        _read_profile(workspace.root, "knife", "chef")


def test_an_edited_params_file_is_not_overwritten(workspace):
    path = workspace.root / "params.yaml"
    path.write_text(path.read_text().replace("dt_s: 0.003", "dt_s: 0.001"))
    with pytest.raises(InputError, match=r"belong in settings\.yaml"):
        refresh_workspace(workspace)
    assert "dt_s: 0.001" in path.read_text()
    path.unlink()
    assert params(workspace).cut.dt_s == 0.003


def test_the_library_of_a_workspace_is_its_own(workspace, monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"])
    name = cuts_of("apple")[0]["name"]
    shipped = (FOLDER / "apple.json").read_bytes()
    remove_cut(workspace, name)
    assert (FOLDER / "apple.json").read_bytes() == shipped, "the installed library is not touched"
    assert name not in [cut["name"] for _, cut in library_cuts(workspace)]
    monkeypatch.setenv(LIBRARY_VARIABLE, "")
    apply_environment(workspace)
    assert name not in [cut["name"] for cut in cuts_of("apple")]
    monkeypatch.delenv(LIBRARY_VARIABLE)
    assert name in [cut["name"] for cut in cuts_of("apple")]


def test_dangling_links_of_a_moved_workspace_are_made_again(workspace, tmp_path):
    moved = tmp_path / "moved"
    workspace.root.rename(moved)
    (moved / "pipelines").unlink()
    (moved / "pipelines").symlink_to("/nowhere")
    project = find_project(moved)
    refresh_workspace(project)
    assert (moved / "pipelines" / "project.py").is_file()
    assert (moved / "stages/shared/library/cuts").resolve() == (moved / "library").resolve()


@pytest.mark.parametrize("where", ["full", "file", "clone/inside", "site-packages/lab"])
def test_init_overwrites_nothing(tmp_path, where):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "clone" / "pipelines").mkdir(parents=True)
    (tmp_path / "clone" / "pipelines" / "workspace.py").write_text("")
    with pytest.raises(InputError):
        init_workspace(tmp_path / where)
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_outside_any_project_the_clone_is_named(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "pipelines.cli.main", "list"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0 and f"Workspace: {ROOT}" in result.stderr


@pytest.mark.slow
def test_a_wheel_works_without_the_clone(tmp_path):
    """Build a wheel, install it where only the other packages are seen, make a workspace, run the first stages."""
    source = tmp_path / "source"
    names = shutil.ignore_patterns("__pycache__", "*.so")
    source.mkdir()
    for name in ("pipelines", "stages", "disect_sim", "data/sample"):
        shutil.copytree(ROOT / name, source / name, ignore=names)
    shutil.copy(ROOT / "data" / ".gitignore", source / "data")
    for name in (
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "scan2cut.py",
        "params.yaml",
        "dvc.yaml",
        ".dvcignore",
    ):
        shutil.copy(ROOT / name, source)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        tmp_path,
        source,
    ]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("scan2cut-*.whl")
    shutil.rmtree(source)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("PREFECT")}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--force-reinstall", wheel]
    subprocess.run(install, check=True, env=environment)

    def scan2cut(folder, *words):
        return subprocess.run(
            [tmp_path / "venv" / "bin" / "scan2cut", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    nowhere = scan2cut(tmp_path, "list")
    assert nowhere.returncode == 2 and "scan2cut init DIR" in nowhere.stderr, nowhere.stderr
    made = scan2cut(tmp_path, "init", "lab")
    assert made.returncode == 0 and f"Workspace: {tmp_path / 'lab'}" in made.stdout, made.stderr
    lab = tmp_path / "lab"
    assert scan2cut(lab, "sample").returncode == 0
    own = lab / "sample" / "my_fruit.ply"
    (lab / "sample" / "synthetic_apple.ply").rename(own)
    light = ("--set", "clean.target_edge_m=0.006", "--set", "tetrahedralize.edge_m=0.03")
    before = {path for path in packages.rglob("*") if "__pycache__" not in path.parts}
    done = scan2cut(lab, "run", str(own), "--target", "precut", *light)
    assert done.returncode == 0, done.stderr
    assert (lab / "data/scans/my_fruit/precut/metrics.json").is_file() and f"Workspace: {lab}" in done.stderr
    again = scan2cut(lab, "status", "--json")
    assert '"stage": "precut", "state": "fresh"' in again.stdout, again.stdout
    assert {path for path in packages.rglob("*") if "__pycache__" not in path.parts} == before, (
        "nothing is written to site-packages"
    )
