"""The plan of a sliced fruit: the division, and one scan per cut that has only the stages from `halve` on.

A slice is a scan of its own (data/scans/<fruit>-slice-01, …): its body is what the cuts before it left, everything up
to the calibration is the fruit's. So every command, DVC, the flow and the crash tests treat it like any scan; slices
run side by side, and another thickness makes the slices stale, not the calibration.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.dvc.pipeline_file import is_slice, refresh_pipeline_file, slice_scans
from pipelines.project import Project, known_scans, scan_lock
from pipelines.scans.manage import remove_scan
from pipelines.scans.register import REGISTERING, scan_file_text
from pipelines.scans.tradeoff import TAKEN_OVER
from stages.export.cell import cell_of
from stages.runtime.artifacts import read_table
from stages.runtime.errors import InputError
from stages.runtime.files import write_bytes_atomic
from stages.runtime.params import load_params
from stages.runtime.scan_file import ID_PATTERN, PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_mapping
from stages.runtime.stage_io import encode_png
from stages.shared.slicing import (
    Division,
    NotCut,
    Piece,
    Wanted,
    dice,
    dice_picture,
    divide,
    division_picture,
    standing_box,
)
from stages.shared.surface import Surface

FOLDER = "slices"
"""Folder of the plan in the fruit's directory."""
_PLAN = "plan.json"
PICTURE = "division.png"
_DICE_PICTURE = "dice.png"
_HELD = ("held", "glued")
"""Values of cut.boundary with which the body can't tip over."""
_SEARCH = {"iterations": 4, "ablation_iterations": 0, "confirm": False}
"""Settings of optimize for a slice that starts from a known motion; `--set` of the fruit has precedence."""
_GENTLE = 0.4
"""Share of the arm's acceleration along the blade: the section is up to twice that of a half, and so is the force that
changes its sign with the stroke.
"""


@dataclass(frozen=True)
class SlicePlan:
    """How a fruit is divided."""

    fruit: str
    of: str
    """whole or half."""
    wanted: Wanted
    division: Division

    @property
    def scans(self) -> tuple[str, ...]:
        """Ids of the slices' scans, in the order of the cuts."""
        return tuple(_slice_id(self.fruit, piece.number) for piece in self.division.cuts)


def _slice_id(fruit: str, number: int) -> str:
    """Return the id of a slice's scan."""
    return f"{fruit}-slice-{number:02d}"


def body_of(project: Project, fruit: str, of: str) -> Surface:
    """Return the body to slice as it stands on the board: the cleaned fruit, or the half laid down by `halve`."""
    stage = "clean" if of == "whole" else "halve"
    scan_dir = project.scan_dir(fruit)
    vertices, faces = read_table(scan_dir, f"{stage}/vertices"), read_table(scan_dir, f"{stage}/faces")
    return Surface(vertices["position_m"].to_numpy(), faces["vertices"].to_numpy())


def make_plan(project: Project, fruit: str, wanted: Wanted, of: str) -> SlicePlan:
    """Divide the fruit's body; raise InputError if nothing can be cut as wanted. Writes nothing."""
    check_fruit(project, fruit)
    cut = load_params(project.root / PARAMS_FILE_NAME, project.scan_dir(fruit) / SCAN_FILE_NAME).cut
    division = divide(
        body_of(project, fruit, of),
        wanted,
        thinnest_m=cut.blade.spine_m,
        held=cut.boundary in _HELD,
    )
    plan = SlicePlan(fruit, of, wanted, division)
    if not plan.scans:
        first = division.not_cut[0]
        raise InputError(
            f"No slice can be cut, e.g. at {1e3 * first.at_m:.1f} mm: {first.reason}. At least one must be. "
            "Change --thickness, --from or the direction (--axis), slice a half (--half), or hold the fruit "
            "(--set cut.boundary=held)."
        )
    return plan


def check_fruit(project: Project, fruit: str) -> None:
    """Reject an unknown scan, a slice, and an id that leaves no room for the slices' ids."""
    known_scans(project, [fruit])
    if is_slice(project, fruit):
        raise InputError(f"{fruit} is itself a slice. Only a fruit can be sliced. Give the id of the fruit.")
    if not ID_PATTERN.fullmatch(_slice_id(fruit, 1)):
        raise InputError(
            f"The id {fruit!r} has {len(fruit)} characters. The slices' ids need 9 more, at most 64. Shorten it with "
            "'scan2cut rename'."
        )


def write_plan(project: Project, plan: SlicePlan) -> list[str]:
    """Write plan.json, the picture and the slices' scans; remove scans of a former plan; return those removed.

    Raises InputError if a former slice that is no longer planned has measured logs.
    """
    folder = project.scan_dir(plan.fruit) / FOLDER
    gone = [scan for scan in slice_scans(project, plan.fruit) if scan not in plan.scans]
    for scan in gone:
        kept = [name for name in ("measured", "executed") if (project.scan_dir(scan) / name).is_dir()]
        if kept:
            raise InputError(
                f"{scan} has measurements ({', '.join(kept)}) but is not in the new plan. Measurements can't be made "
                f"again, so they are not removed. Keep the former plan, or remove it with 'scan2cut remove {scan}'."
            )
    folder.mkdir(exist_ok=True)
    title = f"{plan.fruit} ({plan.of}): {len(plan.scans)} cuts"
    body = body_of(project, plan.fruit, plan.of)
    picture = division_picture(body, plan.division, title)
    write_bytes_atomic(folder / PICTURE, encode_png(picture))
    with scan_lock(project, REGISTERING, lambda: None):
        for number, scan in enumerate(plan.scans, start=1):
            _write_scan(project, plan, number, scan)
    content = {
        "fruit": plan.fruit,
        "of": plan.of,
        "wanted": asdict(plan.wanted),
        "normal": list(plan.division.normal),
        "start_m": plan.division.start_m,
        "length_m": plan.division.length_m,
        "pieces": [asdict(piece) for piece in plan.division.pieces],
        "not_cut": [asdict(one) for one in plan.division.not_cut],
        "scans": list(plan.scans),
        "standing_m": [standing_box(body, plan.division, piece) for piece in plan.division.cuts],
    }
    write_bytes_atomic(folder / _PLAN, (json.dumps(content, indent=1) + "\n").encode())
    for scan in gone:
        remove_scan(project, scan)
    return gone


def dice_plan(project: Project, plan: SlicePlan, spacing_m: float) -> dict[str, Any]:
    """Divide the plan's slices again by planes across them; write the picture and return the figures."""
    body = body_of(project, plan.fruit, plan.of)
    cut = load_params(project.root / PARAMS_FILE_NAME, project.scan_dir(plan.fruit) / SCAN_FILE_NAME).cut
    diced = dice(body, plan.division, spacing_m, thinnest_m=cut.blade.spine_m)
    volumes = diced.volumes_m3
    path = project.scan_dir(plan.fruit) / FOLDER / _DICE_PICTURE
    title = f"{plan.fruit} ({plan.of}): {len(volumes)} pieces, moved apart"
    write_bytes_atomic(path, encode_png(dice_picture(body, plan.division, diced, title)))
    return {
        "across_m": list(diced.across_m),
        "pieces": len(volumes),
        "whole": sum(volume >= 0.9 * max(volumes) for volume in volumes),
        "largest_m3": max(volumes),
        "smallest_m3": min(volumes),
        "picture": str(path.relative_to(project.root)),
    }


def read_plan(project: Project, fruit: str) -> SlicePlan:
    """Return the fruit's plan; raise InputError if there is none."""
    known_scans(project, [fruit])
    path = project.scan_dir(fruit) / FOLDER / _PLAN
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        wanted = {**content["wanted"], "normal": _three(content["wanted"]["normal"])}
        division = Division(
            _three(content["normal"]),
            float(content["start_m"]),
            float(content["length_m"]),
            tuple(Piece(**piece) for piece in content["pieces"]),
            tuple(NotCut(**one) for one in content["not_cut"]),
        )
        return SlicePlan(content["fruit"], content["of"], Wanted(**wanted), division)
    except FileNotFoundError:
        raise InputError(
            f"{fruit} has no plan of slices. One must be made first: 'scan2cut slice {fruit} --thickness 5mm'."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} can't be read ({type(error).__name__}: {error}). Plan the slices again with 'scan2cut slice "
            f"{fruit} --thickness …'; results that are still right are kept."
        ) from error


def _three(values: Any) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in values)
    return x, y, z


def set_slice(project: Project, scan: str, values: Mapping[str, Mapping[str, Any]]) -> None:
    """Merge parameters into a slice's scan.yaml."""
    content = read_scan_mapping(project.scan_dir(scan) / SCAN_FILE_NAME)
    for section, changed in values.items():
        content[section] = {**(content.get(section) or {}), **changed}
    _write_scan_file(project.scan_dir(scan) / SCAN_FILE_NAME, content)


def known_motion(project: Project, scan: str) -> list[list[float]]:
    """Return the optimised keyframes of a scan in the form of optimize.first_motion; empty if it has none."""
    from stages.optimize.search import KEYFRAMES, first_motion

    try:
        rows = read_table(project.scan_dir(scan), "optimize/keyframes")
    except InputError:
        return []
    return first_motion(*(rows[name].to_numpy() for name in KEYFRAMES.values() if name in rows.columns))


def start_from(project: Project, scan: str, motion: list[list[float]]) -> None:
    """Let a slice's search start from a known motion, unless it has one already."""
    own = read_scan_mapping(project.scan_dir(scan) / SCAN_FILE_NAME).get("optimize") or {}
    if not own.get("first_motion"):
        set_slice(project, scan, {"optimize": {**_SEARCH, **own, "first_motion": motion}})


def halve_steps(project: Project, scan: str) -> None:
    """Simulate a slice with steps half as long as now."""
    path = project.scan_dir(scan) / SCAN_FILE_NAME
    set_slice(
        project, scan, {"cut": {"dt_s": 0.5 * load_params(project.root / PARAMS_FILE_NAME, path).cut.dt_s}}
    )


def _write_scan(project: Project, plan: SlicePlan, number: int, scan: str) -> None:
    """Write scan.yaml and dvc.yaml of one slice; a start of its search that is already known is kept."""
    fruit = read_scan_mapping(project.scan_dir(plan.fruit) / SCAN_FILE_NAME)
    every = load_params(project.root / PARAMS_FILE_NAME, project.scan_dir(plan.fruit) / SCAN_FILE_NAME)
    params = every.export
    division, piece = plan.division, plan.division.cuts[number - 1]
    at = [division.start_m + one.to_m for one in division.cuts]
    away = at[number - 1] - 0.5 * (at[0] + at[-1])
    across = cell_of(params).o_t_c[:3, 0]
    board = [round(p + away * float(x), 6) for p, x in zip(params.board_position_m, across, strict=True)]
    cut = {
        "of": plan.of,
        "normal": [float(value) for value in division.normal],
        "from_m": round(division.start_m + piece.from_m, 9),
        "at_m": round(at[number - 1], 9),
    }
    folder = project.scan_dir(scan)
    before = read_scan_mapping(folder / SCAN_FILE_NAME) if (folder / SCAN_FILE_NAME).is_file() else {}
    start, chosen = _kept_search(before, cut)
    own = fruit.get("optimize") or {}
    if own.get(
        "first_motion"
    ):  # taken over by `scan2cut tradeoff`: of the fruit's own cut, not of its slices
        own = {name: value for name, value in own.items() if name not in TAKEN_OVER}
    learnt = before.get("transport") or {}
    content = {
        **fruit,
        "id": scan,
        "fruit": plan.fruit,
        "slice_number": number,
        "optimize": {
            "max_acceleration_along_m_s2": _GENTLE * every.optimize.max_acceleration_along_m_s2,
            **start,
            **own,
            **chosen,
        },
        "transport": {**learnt, **(fruit.get("transport") or {})},
        "halve": {**(fruit.get("halve") or {}), "slice": cut},
        "export": {**(fruit.get("export") or {}), "board_position_m": board},
    }
    folder.mkdir(exist_ok=True)
    _write_scan_file(folder / SCAN_FILE_NAME, content)
    refresh_pipeline_file(project, scan)


def _kept_search(before: Mapping[str, Any], cut: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a slice's scan.yaml says of its search: a start, and the motion chosen for the same cut."""
    old = before.get("optimize") or {}
    motion = old.get("first_motion")
    start = {**_SEARCH, "first_motion": motion} if motion else {}
    same = (before.get("halve") or {}).get("slice") == cut
    chosen = {name: old[name] for name in TAKEN_OVER} if same and set(TAKEN_OVER) <= set(old) else {}
    return start, chosen


def _write_scan_file(path: Path, content: Mapping[str, Any]) -> None:
    text = scan_file_text(content)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_bytes_atomic(path, text.encode())
