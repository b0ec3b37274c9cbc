"""Project folders outside the clone: make one, keep its links to the installed code current, merge its settings.

A workspace has the lab's data, library of cuts and profiles, and settings.yaml with only what differs from the shipped
defaults. params.yaml, which DVC and the stages read, is generated: defaults, then profiles, then settings.yaml. DVC
tracks the code of a stage by paths in the project, so a workspace has links to the installed packages.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipelines.project import SETTINGS_FILE_NAME, Project, shipped_file
from stages.runtime.errors import InputError, did_you_mean
from stages.runtime.files import PlainDumper, read_mapping, write_bytes_atomic
from stages.runtime.params import SECTIONS, check_section_names, merge_params
from stages.runtime.scan_file import PARAMS_FILE_NAME
from stages.shared.knives.knife_file import SHIPPED_KNIVES, DescribedKnife, described, read_knife_file

_PACKAGES = Path(__file__).parents[1]
"""Folder of the installed packages."""
_LIBRARY = Path("stages/shared/library/cuts")
"""Folder of the library among the packages; in a workspace it is a link to `library`."""
_COPIED = ("dvc.yaml", ".dvcignore", "data/.gitignore")
_LINKED = ("pipelines", "disect_sim")
_GIT_IGNORED = ("/stages/", "/pipelines", "/disect_sim", "/.prefect/", "/build/", "__pycache__/")
_DVC_CONFIG = "[core]\n    analytics = false\n    check_update = false\n    autostage = false\n"

_KNIFE = "knife"
_ALLOWED: dict[str, dict[str, tuple[str, ...]]] = {
    "cell": {"export": (), "ingest": ()},
    _KNIFE: {"cut": ("knife",)},
    "material": {"cut": ("parameters",)},
    "robot": {"arm": (), "optimize": (), "export": ("joint_stiffness_nm_rad", "max_deflection_m")},
}
"""Kind of profile → sections that it may set, and their keys (none: all). A knife is usually a knife file instead."""

_SETTINGS_TEXT = f"""\
# Settings of this workspace: only what differs from scan2cut's defaults. Defaults, profiles and this file are merged,
# in this order, into {PARAMS_FILE_NAME}: edit this file, not that one. `scan2cut run SCAN --set ...` is for one scan.
profiles: {{}}   # of all scans, e.g. {{cell: bench, knife: chef, robot: fr3}}: files profiles/KIND/NAME.yaml
# cut:
#   speed_m_s: 0.04
"""
_PROFILE_TEXTS = {
    "cell/bench.yaml": """\
# Board and holder of your cell (docs/workspace.md shows how to measure each). Use it: profiles: {cell: bench}
export:
  board_position_m: [0.575, -0.1, 0.03]  # A: origin of the cutting frame in the robot's base frame
  blade_yaw_deg: 90.0                    # direction of the blade in the base frame
  edge_offset_m: [0.0, 0.12, 0.15]       # B: centre of the edge in the flange frame
  blade_angle_deg: -90.0
  fixture_low_m: [-0.045, 0.01, 0.08]    # C: box around holder and flange in the edge's frame
  fixture_high_m: [0.045, 0.20, 0.17]
""",
    "knife/chef.yaml": """\
# Your knife (docs/workspace.md shows how to measure it; `scan2cut knife show chef` draws it). Use it: profiles:
# {knife: chef}, or cut: {knife: chef}
about: Chef's knife, 200 mm
length_m: 0.2                # F
height_m: 0.045              # G
spine_m: 0.002               # H
edge_m: 0.0001               # I
bevel_deg: 30                # J
mass_kg: 0.45                # D: on scales, with the holder
com_m: [0.0, 0.04, 0.06]     # E: balance it on an edge; from the flange, along its axes
""",
    "material/firm_apple.yaml": """\
# A material: values that differ from the library's. For one scan: scan2cut run SCAN --profile material/firm_apple
cut:
  parameters: {edge_toughness: 500.0}
""",
    "robot/fr3.yaml": """\
# The arm, and limits below its own. Use it: profiles: {robot: fr3}
arm:
  robot: fr3
""",
}


def init_workspace(folder: Path) -> Project:
    """Make a workspace in a new or empty folder; on an existing workspace, only restore what is missing."""
    folder = folder.absolute()
    _check_folder(folder)
    try:
        (folder / "data" / "scans").mkdir(parents=True, exist_ok=True)
        for name in _COPIED:
            _new_file(folder / name, shipped_file(name).read_bytes())
        for source in sorted((_PACKAGES / _LIBRARY).glob("*.json")):
            _new_file(folder / "library" / source.name, source.read_bytes())
        for name, text in _PROFILE_TEXTS.items():
            _new_file(folder / "profiles" / name, text.encode())
        _new_file(folder / ".gitignore", ("\n".join(_GIT_IGNORED) + "\n").encode())
        git = _git(folder)
        no_scm = "" if git else "    no_scm = true\n"
        _new_file(folder / ".dvc" / "config", (_DVC_CONFIG + no_scm).encode())
        _new_file(folder / ".dvc" / ".gitignore", b"/config.local\n/tmp\n/cache\n")
        _new_file(folder / SETTINGS_FILE_NAME, _SETTINGS_TEXT.encode())  # last: it marks a workspace
    except OSError as error:
        raise InputError(
            f"Can't write to {folder} ({error.strerror or error}). A workspace needs a folder of yours. Choose another."
        ) from error
    project = Project(folder)
    refresh_workspace(project)
    return project


def refresh_workspace(project: Project) -> None:
    """Bring links and params.yaml of a workspace up to date; do nothing in a clone."""
    if not (project.root / SETTINGS_FILE_NAME).is_file():
        return
    _link_packages(project.root)
    _write_params(project.root)


def _read_profile(root: Path, kind: str, name: str) -> dict[str, Any]:
    """Return the sections of profiles/KIND/NAME.yaml; raise InputError if it is missing or sets something else."""
    if kind not in _ALLOWED:
        raise InputError(
            f"{kind[:80]!r} is not a kind of profile.{did_you_mean(kind, _ALLOWED)} It must be one of "
            f"{', '.join(_ALLOWED)}. Write it as KIND/NAME, e.g. cell/bench."
        )
    folder = root / "profiles" / kind
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise InputError(
            f"There is no profile {name[:80]!r} in {folder}.{did_you_mean(name, known)} Its profiles: "
            f"{', '.join(known) or 'none'}. Choose one, or write {name[:80]}.yaml there."
        )
    path = folder / f"{name}.yaml"
    sections = read_mapping(path)
    if kind == _KNIFE and not set(sections) & set(SECTIONS):
        return {"cut": {"knife": read_knife_file(path)}}
    for section, values in sections.items():
        keys = _ALLOWED[kind].get(section)
        if keys is None or not isinstance(values, dict):
            raise InputError(
                f"{path}: {section} can't be set here. A profile of kind {kind} has the sections "
                f"{', '.join(_ALLOWED[kind])}, each a mapping. Move it to {SETTINGS_FILE_NAME}."
            )
        for key in values if keys else ():
            if key not in keys:
                raise InputError(
                    f"{path}: {section}.{key} can't be set here. A profile of kind {kind} sets "
                    f"{', '.join(f'{section}.{k}' for k in keys)}. Move it to {SETTINGS_FILE_NAME}."
                )
    return sections


def known_knives(root: Path) -> dict[str, DescribedKnife]:
    """Return the known knives by name: shipped ones, then those of the project at `root`."""
    return {name: described(resolved_knife(root, name)) for name in (*SHIPPED_KNIVES, *_own_knives(root))}


def _own_knives(root: Path) -> list[str]:
    own = sorted(path.stem for path in (root / "profiles" / _KNIFE).glob("*.yaml"))
    twice = [name for name in own if name in SHIPPED_KNIVES]
    if twice:
        raise InputError(
            f"{root / 'profiles' / _KNIFE / twice[0]}.yaml has the name of a shipped knife. A name must mean one "
            "knife. Rename the file."
        )
    return own


def resolved_knife(root: Path, knife: Any) -> Any:
    """Return the description of a project's own knife in place of its name; anything else as it is.

    Results depend on params.yaml and scan.yaml, which therefore have the description.
    """
    if not isinstance(knife, str) or knife in SHIPPED_KNIVES:
        return knife
    own = _own_knives(root)
    if knife not in own:
        every = [*SHIPPED_KNIVES, *own]
        raise InputError(
            f"{knife[:80]!r} is not a known knife.{did_you_mean(knife, every)} Known: {', '.join(every)}. Choose one, "
            f"or write {root / 'profiles' / _KNIFE / 'NAME.yaml'} (docs/workspace.md)."
        )
    return _read_profile(root, _KNIFE, knife)["cut"]["knife"]


def profile_overrides(
    project: Project, names: list[str], overrides: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the parameters of profiles named KIND/NAME for one scan, later ones win, and over them `overrides`."""
    merged: dict[str, Any] = {}
    for each in names:
        kind, _, name = each.partition("/")
        merged = _merged(merged, _read_profile(project.root, kind, name))
    return _merged(merged, overrides)


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. A workspace is a folder. Choose another name.")
    for parent in (folder, *folder.parents):
        if parent.name in ("site-packages", "dist-packages"):
            raise InputError(
                f"{folder} is inside the installed packages. An update would delete the data. Choose another folder."
            )
        inside = (parent / SETTINGS_FILE_NAME).is_file() or (parent / "pipelines" / "workspace.py").is_file()
        if inside and not (parent == folder and (parent / SETTINGS_FILE_NAME).is_file()):
            raise InputError(
                f"{folder} is inside the scan2cut project {parent}. A workspace can't be inside another. Choose a "
                "folder outside it, or work in that project."
            )
    if folder.is_dir() and any(folder.iterdir()) and not (folder / SETTINGS_FILE_NAME).is_file():
        others = [path for path in folder.iterdir() if path.name != ".git"]
        if others:
            raise InputError(
                f"{folder} is not empty ({others[0].name}, ...). A workspace starts in an empty folder, so that "
                "nothing is overwritten. Choose another."
            )


def _new_file(path: Path, content: bytes) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(path, content)


def _git(folder: Path) -> bool:
    """Return whether the folder is in a git work tree; make one if git is installed."""
    if shutil.which("git") is None:
        return False
    inside = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=folder, capture_output=True, check=False)
    if inside.returncode == 0:
        return True
    made = subprocess.run(["git", "init", "--quiet"], cwd=folder, capture_output=True, check=False)
    return made.returncode == 0


def _link_packages(root: Path) -> None:
    """Link the installed code; the folder of the library's cuts is a link to the workspace's own."""
    for name in _LINKED:
        _link(root / name, _PACKAGES / name)
    _link_children(root, Path("stages"))


def _link_children(root: Path, folder: Path) -> None:
    """Make a real folder whose entries are links, down to the library, whose cuts are the workspace's."""
    (root / folder).mkdir(exist_ok=True)
    for source in sorted((_PACKAGES / folder).iterdir()):
        path = folder / source.name
        if path == _LIBRARY:
            _link(root / path, root / "library")
        elif path in _LIBRARY.parents:
            _link_children(root, path)
        elif source.name != "__pycache__":
            _link(root / path, source)
    for path in (root / folder).iterdir():
        if path.is_symlink() and not path.exists():
            path.unlink()  # gone since an update


def _link(path: Path, target: Path) -> None:
    if path.is_symlink() and path.readlink() == target:
        return
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        raise InputError(
            f"{path} is not a link. In a workspace it must be a link to scan2cut's installed code. Move it away."
        )
    path.symlink_to(target)


_GENERATED = "# Generated from the defaults, profiles and settings.yaml of this workspace. Edit settings.yaml. Digest: "


def _write_params(root: Path) -> None:
    """Write params.yaml from defaults, profiles and settings.yaml; reject one that somebody has edited."""
    path = root / PARAMS_FILE_NAME
    if path.is_file():
        head, _, body = path.read_text(encoding="utf-8").partition("\n")
        if head != _GENERATED + _digest(body):
            raise InputError(
                f"{path} was edited, but it is generated. Settings of a workspace belong in {SETTINGS_FILE_NAME}. Copy "
                f"your changes there, then delete {PARAMS_FILE_NAME}; the next command writes it again."
            )
    defaults = shipped_file(PARAMS_FILE_NAME)
    settings = dict(read_mapping(root / SETTINGS_FILE_NAME))
    profiles = settings.pop("profiles", None) or {}
    if not isinstance(profiles, dict):
        raise InputError(
            f"{root / SETTINGS_FILE_NAME}: profiles is {profiles!r}. It must be a mapping, e.g. {{cell: bench}}. "
            "Correct it."
        )
    differences: dict[str, Any] = {}
    for kind, name in profiles.items():
        differences = _merged(differences, _read_profile(root, str(kind), str(name)))
    check_section_names(list(settings), str(root / SETTINGS_FILE_NAME))
    differences = _merged(differences, settings)
    if "knife" in (differences.get("cut") or {}):
        differences["cut"]["knife"] = resolved_knife(root, differences["cut"]["knife"])
    content = _merged(read_mapping(defaults), differences)
    body = yaml.dump(content, Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=120)
    text = _GENERATED + _digest(body) + "\n" + body
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        merge_params(
            defaults, differences, overrides_from=str(root / SETTINGS_FILE_NAME)
        )  # rejects wrong values
        write_bytes_atomic(path, text.encode())


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def _merged(base: Mapping[str, Any], sections: Mapping[str, Any]) -> dict[str, Any]:
    """Merge sections of parameters as scan.yaml over params.yaml: a mapping such as cut.parameters is merged by key.

    A mapping with a name, a described knife, is one thing.
    """
    merged = dict(base)
    for name, values in sections.items():
        if values is not None and not isinstance(values, dict):
            raise InputError(
                f"{SETTINGS_FILE_NAME}: {name} is {str(values)[:80]!r}. A section must be a mapping of parameters to "
                f"values. Write it as '{name}: {{key: value}}'."
            )
        section = dict(merged.get(name) or {})
        for key, value in (values or {}).items():
            nested = isinstance(value, dict) and isinstance(section.get(key), dict) and "name" not in value
            section[key] = {**section[key], **value} if nested else value
        merged[name] = section
    return merged
