"""One programme for all slices of a fruit: cut, lift, step over, next; written, certified and verified as a whole.

The folder holds the certified export of every slice, the moves between them, and the whole as files to play. Each slice
begins and ends at rest, so the arm may stop after any of them, return by that slice's own move and go on later.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import base_distance, link_heights, tool_corners
from stages.export.certificate import Certificate, verify
from stages.export.checks import AGAIN, Check, at_least, at_most, holds
from stages.export.demand import Demand, demand_of_files
from stages.export.export_files import (
    REASON,
    TRAJECTORY_MCAP,
    TRAJECTORY_YAML,
    WHOLE,
    ExportFiles,
    read_document,
    read_export,
)
from stages.export.motion_checks import edge_poses, fixture_boxes, limits
from stages.export.moves import move, worst_of
from stages.export.place_checks import BASE_CLEARANCE_M, LINK_CLEARANCE_M
from stages.export.signature import signature_checks, signed
from stages.export.trajectory_files import NANOSECONDS, Trajectory, mcap_bytes, same_bag, yaml_bytes
from stages.export.waypoints import JOINT_RATES, WAYPOINT_STRIDE, central_rates, joint_csv_bytes
from stages.runtime.errors import EXIT_BAD_INPUT, InputError, die_with_parent
from stages.runtime.files import sha256_of_file, sha256_of_value, write_bytes_atomic

PROGRAMME = "programme.json"
PROGRAMME_FOLDER = "programme"
"""In the fruit's folder of slices."""
_SCHEMA, _VERSION = "scan2cut/programme", 1
_SCRIPT = "run_slices.py"
_CERTIFIED, _REFUSED, _UNCHECKED = "certified", "refused", ".unchecked"
_STEP_M = 1e-4
"""Permitted difference of the step between two cuts from the planned thickness."""
_JOIN_RAD = 1e-9
_STRIDE = 10
_BETWEEN = "moves between the slices"


@dataclass(frozen=True)
class SliceOfProgramme:
    """One slice as it goes into the programme."""

    number: int
    folder: Path
    """Its certified export."""
    thickness_m: float
    """Of the piece that this cut parts from the rest."""
    standing_low_m: Sequence[float]
    """Box around the whole fruit, slices that stand included, in this slice's cutting frame."""
    standing_high_m: Sequence[float]


@dataclass(frozen=True)
class _Part:
    """One slice as read back from its folder."""

    entry: dict[str, Any]
    files: ExportFiles
    demand: Demand
    certificate: Certificate


def write_programme(parent: Path, fruit: str, slices: Sequence[SliceOfProgramme]) -> tuple[Path, Certificate]:
    """Write the programme below `parent`, read it back, certify it, leave it in `certified` or `refused`.

    An earlier programme is replaced at the end; nothing half-written remains.
    """
    if not slices:
        raise InputError(
            f"{fruit} has no certified slice. A programme needs at least one. Run 'scan2cut slice {fruit}'."
        )
    unchecked = parent / _UNCHECKED
    shutil.rmtree(unchecked, ignore_errors=True)
    unchecked.mkdir(parents=True)
    entries = []
    for one in slices:
        name = f"{one.number:02d}"
        shutil.copytree(one.folder, unchecked / name)
        document = read_document(unchecked / name / "cut.json")
        entries.append(
            {
                "number": one.number,
                "folder": name,
                "scan": document["scan"],
                "content_sha256": document["certificate"]["content_sha256"],
                "thickness_m": one.thickness_m,
                "standing_low_m": list(one.standing_low_m),
                "standing_high_m": list(one.standing_high_m),
            }
        )
    parts = [_read_part(unchecked, entry) for entry in entries]
    steps = _steps(parts)
    for name, joints in steps.items():
        write_bytes_atomic(unchecked / name, joint_csv_bytes(joints))
    for name, data in _files_to_play(parts, list(steps.values())).items():
        write_bytes_atomic(unchecked / name, data)
    write_bytes_atomic(unchecked / _SCRIPT, Path(__file__).with_name(_SCRIPT).read_bytes())
    own = [*steps, WHOLE, TRAJECTORY_YAML, TRAJECTORY_MCAP, _SCRIPT]
    content = {
        "schema": _SCHEMA,
        "schema_version": _VERSION,
        "fruit": fruit,
        "robot": parts[0].demand.robot.name,
        "warning": parts[0].files.document["warning"],
        "slices": entries,
        "steps": list(steps),
        "total_s": (len(_whole(parts, list(steps.values()))) - 1) / 1000,
        "siblings_sha256": {name: sha256_of_file(unchecked / name) for name in sorted(own)},
    }
    certificate = _certify(unchecked, content, parts)
    folder = parent / (_CERTIFIED if certificate.certified else _REFUSED)
    if not certificate.certified:
        (unchecked / _SCRIPT).unlink()
        failed = "\n".join(f"  {check.sentence()}" for check in certificate.failed)
        write_bytes_atomic(
            unchecked / REASON, f"NOT CERTIFIED.\n\n{certificate.verdict}\n\n{failed}\n".encode()
        )
    seal = {"content_sha256": sha256_of_value(content)}
    sealed = signed(certificate.plain() | seal, content)
    text = json.dumps({**content, "certificate": sealed}, indent=1, allow_nan=False)
    write_bytes_atomic(unchecked / PROGRAMME, (text + "\n").encode())
    for old in (_CERTIFIED, _REFUSED):
        shutil.rmtree(parent / old, ignore_errors=True)
    os.replace(unchecked, folder)
    return folder, certificate


def verify_programme(folder: Path, public_key: Path | None = None) -> Certificate:
    """Run every check on a programme as it is now; nothing that the folder says about itself is believed.

    With a public key, given or in the environment, the programme and every slice must be signed by it.
    """
    signature_checks({}, {}, public_key)  # rejects an unusable key
    try:
        content = read_document(folder / PROGRAMME)
        sealed = content.pop("certificate", None)
        if (content.get("schema"), content.get("schema_version")) != (_SCHEMA, _VERSION):
            raise ValueError(
                f"{PROGRAMME} has schema {content.get('schema')} {content.get('schema_version')}"
            )
        parts = [_read_part(folder, entry, public_key) for entry in content["slices"]]
        certificate = _certify(folder, content, parts)
    except Exception as error:  # noqa: BLE001 -- edited files can raise anything
        note = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return Certificate((holds(1, "files readable", False, note, remedy=AGAIN),), {})
    intact = isinstance(sealed, dict) and sealed.get("content_sha256") == sha256_of_value(content)
    same = isinstance(sealed, dict) and sealed.get("verdict") == certificate.verdict
    checks = (
        *certificate.checks,
        holds(7, "certificate belongs to this programme", intact, f"sha256 of {PROGRAMME}", remedy=AGAIN),
        holds(7, "stated verdict is that of the repeated checks", same, certificate.verdict, remedy=AGAIN),
        *signature_checks(sealed if isinstance(sealed, dict) else {}, content, public_key),
    )
    return Certificate(checks, certificate.figures, certificate.force_calibrated)


def _read_part(folder: Path, entry: dict[str, Any], public_key: Path | None = None) -> _Part:
    name = str(entry["folder"])
    if name != f"{int(entry['number']):02d}":
        raise ValueError(f"slice {entry['number']} is in {name!r}")
    files = read_export(folder / name)
    return _Part(
        entry, files, demand_of_files(folder / name, files.document), verify(folder / name, public_key)
    )


def _steps(parts: Sequence[_Part]) -> dict[str, NDArray[np.float64]]:
    """Return the moves from the end of each motion to the start of the next by file, joints [rad] at 1 kHz."""
    return {
        f"step_{a.entry['folder']}_{b.entry['folder']}.csv": move(
            a.files.cut.joints[-1], b.files.cut.joints[0], a.demand
        )
        for a, b in pairwise(parts)
    }


def _whole(parts: Sequence[_Part], steps: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return joints [rad] at 1 kHz from the ready pose through all slices back to it, shape [n, joint_count]."""
    path = [parts[0].files.cut.to_start]
    for part, after in zip(parts, [*steps, parts[-1].files.cut.to_ready], strict=True):
        path += [part.files.cut.joints[1:], after[1:]]
    return np.concatenate(path)


def _files_to_play(parts: Sequence[_Part], steps: Sequence[NDArray[np.float64]]) -> dict[str, bytes]:
    """Return the whole programme as a CSV file at 1 kHz and as ROS 2 trajectories at 100 Hz."""
    rows = [[a[:-1:WAYPOINT_STRIDE] for a in central_rates(parts[0].files.cut.to_start)]]
    for index, part in enumerate(parts):
        rows.append([part.files.waypoints[name].to_numpy() for name in JOINT_RATES])
        last = index == len(steps)
        after = central_rates(part.files.cut.to_ready if last else steps[index])
        rows.append([a[WAYPOINT_STRIDE : None if last else -1 : WAYPOINT_STRIDE] for a in after])
    joined = [np.concatenate(column) for column in zip(*rows, strict=True)]
    time = NANOSECONDS // 1000 * WAYPOINT_STRIDE * np.arange(len(joined[0]), dtype=np.int64)
    trajectory = Trajectory(parts[0].demand.robot.joint_names, time, *joined)
    return {
        WHOLE: joint_csv_bytes(_whole(parts, steps)),
        TRAJECTORY_YAML: yaml_bytes(trajectory),
        TRAJECTORY_MCAP: mcap_bytes(trajectory),
    }


def _certify(folder: Path, content: dict[str, Any], parts: Sequence[_Part]) -> Certificate:
    """Check slices, moves between them, their places, and that the files are what this version writes."""
    steps = _steps(parts)
    checks = [
        *_slices(content, parts),
        *_same_cell(parts),
        *_places(parts),
        *_moves_between(parts, list(steps.values())),
        *_as_written(folder, content, parts, steps),
    ]
    calibrated = all(part.certificate.force_calibrated for part in parts)
    figures = {
        "total_s": float(content["total_s"]),
        "peak_force_n": max(float(part.certificate.figures.get("peak_force_n", 0.0)) for part in parts),
        "slices": len(parts),
    }
    return Certificate(tuple(checks), figures, calibrated)


def _slices(content: dict[str, Any], parts: Sequence[_Part]) -> list[Check]:
    again = "Run 'scan2cut slice' again"
    numbers = [part.entry["number"] for part in parts]
    checks = [
        holds(
            7,
            f"slice {part.entry['number']}",
            part.certificate.certified and _sealed(part) == part.entry["content_sha256"],
            part.certificate.verdict,
            remedy=again,
        )
        for part in parts
    ]
    in_order = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    checks.append(holds(7, "slices follow each other", in_order, f"{numbers}", remedy=again))
    scans = {part.entry["scan"] for part in parts}
    of_one = all(str(scan).startswith(f"{content['fruit']}-slice-") for scan in scans)
    checks.append(
        holds(7, "all are slices of one fruit", of_one, ", ".join(sorted(map(str, scans))), remedy=again)
    )
    return checks


def _sealed(part: _Part) -> Any:
    return part.files.document.get("certificate", {}).get("content_sha256")


def _same_cell(parts: Sequence[_Part]) -> list[Check]:
    """Check that only the board's position differs between the slices."""

    def rest(part: _Part) -> Any:
        params = part.demand.params.model_dump(mode="json")
        return {key: value for key, value in params.items() if key not in ("board_position_m", "cut")}

    same = all(rest(part) == rest(parts[0]) for part in parts)
    knives = {part.demand.cell.knife for part in parts}
    note = f"{parts[0].demand.robot.title}, {', '.join(sorted(knives))}"
    return [
        holds(
            6,
            "robot, knife and cell are the same",
            same and len(knives) == 1,
            note,
            remedy="Plan all slices anew",
        )
    ]


def _places(parts: Sequence[_Part]) -> list[Check]:
    """Check the step from cut to cut, the holder's distance from slices that stand, and the blade beside them."""
    apart, beside, off = [], [], [0.0]
    for part in parts:
        demand, entry = part.demand, part.entry
        boxes = fixture_boxes(edge_poses(part.files.cut.joints, demand), demand)
        low, high = (np.array(entry[f"standing_{end}_m"]) for end in ("low", "high"))
        gaps = np.maximum(boxes[0] - high, low - boxes[1]).max(axis=1)
        apart.append(float(gaps.min()))
        drift = next(
            (c.value for c in part.certificate.checks if c.name.startswith("edge beside the cut plane")),
            np.inf,
        )
        beside.append(float(entry["thickness_m"]) - 0.5 * demand.params.cut.blade.spine_m - float(drift))
    for a, b in pairwise(parts):
        step = a.demand.cell.o_t_c[:3, :3].T @ (b.demand.cell.o_t_c[:3, 3] - a.demand.cell.o_t_c[:3, 3])
        off.append(float(np.abs(step - [float(b.entry["thickness_m"]), 0.0, 0.0]).max()))
    return [
        at_most(4, "step from cut to cut against the thickness", max(off), _STEP_M, "m", remedy=AGAIN),
        at_least(
            4,
            "distance of the fixture from slices that stand",
            min(apart),
            parts[0].demand.params.fixture_clearance_m,
            "m",
            "all slices still standing where they were",
            remedy="Hold the knife farther from the fruit (export.fixture_*)",
        ),
        at_least(
            9,
            "flesh between the blade and the cut before",
            min(beside),
            0.0,
            "m",
            "thickness less half the spine and the edge's drift under load",
            remedy="Cut thicker slices, or use a thinner knife (cut.knife)",
        ),
    ]


def _moves_between(parts: Sequence[_Part], steps: Sequence[NDArray[np.float64]]) -> list[Check]:
    """Check the moves from slice to slice as the moves to and from the ready pose are."""
    if not steps:
        return []
    tool, links, base, joins = [], [], [], []
    for part, after, q in zip(parts, parts[1:], steps, strict=False):
        robot, cell, looked = part.demand.robot, part.demand.cell, q[::_STRIDE]
        board = float(cell.o_t_c[2, 3])
        top = float(part.entry["standing_high_m"][1])
        tool.append(float(tool_corners(robot, cell, looked)[..., 2].min()) - board - top)
        links.append(float(link_heights(robot, looked).min()) - board)
        base.append(base_distance(robot, cell, looked))
        ends = (part.files.cut.joints[-1], after.files.cut.joints[0])
        joins.append(max(float(np.abs(q[i] - end).max()) for i, end in zip((0, -1), ends, strict=True)))
    aside = "Raise export.approach_height_m, or move the board (export.board_position_m)"
    clearance = parts[0].demand.params.fixture_clearance_m
    return [
        at_most(3, f"{_BETWEEN}: gap where they join", max(joins), _JOIN_RAD, "rad", remedy=AGAIN),
        *worst_of([limits(_BETWEEN, q, part.demand) for part, q in zip(parts, steps, strict=False)]),
        at_least(
            4, f"{_BETWEEN}: knife and fixture above the fruit", min(tool), clearance, "m", remedy=aside
        ),
        at_least(4, f"{_BETWEEN}: links above the board", min(links), LINK_CLEARANCE_M, "m", remedy=aside),
        at_least(4, f"{_BETWEEN}: distance from the base", min(base), BASE_CLEARANCE_M, "m", remedy=aside),
    ]


def _as_written(
    folder: Path, content: dict[str, Any], parts: Sequence[_Part], steps: dict[str, NDArray[np.float64]]
) -> list[Check]:
    """Check that the files are exactly those that this version writes for these slices."""
    expected = {name: joint_csv_bytes(joints) for name, joints in steps.items()}
    expected |= _files_to_play(parts, list(steps.values()))
    expected[_SCRIPT] = Path(__file__).with_name(_SCRIPT).read_bytes()
    own = {PROGRAMME, REASON, *expected, *(part.entry["folder"] for part in parts)}
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in own or path.is_symlink())
    refused = (folder / REASON).is_file()
    other = [
        name
        for name, data in expected.items()
        if not (refused and name == _SCRIPT) and not _same_content(folder / name, data)
    ]
    listed = set(content["siblings_sha256"]) == set(expected) and list(steps) == content["steps"]
    seconds = (len(_whole(parts, list(steps.values()))) - 1) / 1000
    note = ", ".join([*other, *foreign]) or f"{len(expected)} files, {seconds:.1f} s"
    return [
        holds(
            1,
            "files have exactly the content that is written for these slices",
            not other and listed,
            note,
            remedy=AGAIN,
        ),
        holds(7, "every file is listed and regular", not foreign, note, remedy=AGAIN),
        at_most(
            1,
            "stated duration against the files",
            abs(seconds - float(content["total_s"])),
            1e-9,
            "s",
            remedy=AGAIN,
        ),
    ]


def _same_content(path: Path, data: bytes) -> bool:
    if not path.is_file() or path.is_symlink():
        return False
    found = path.read_bytes()
    return same_bag(found, data) if path.name == TRAJECTORY_MCAP else found == data


def main(folder: Path) -> None:
    """Write the programme of the plan in `folder`, which is the `slices` folder of a fruit: the stage's command."""
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    slices = [
        SliceOfProgramme(
            piece["number"],
            folder.parent.parent / scan / "export" / "cut" / _CERTIFIED,
            piece["to_m"] - piece["from_m"],
            *box,
        )
        for piece, scan, box in zip(plan["pieces"][:-1], plan["scans"], plan["standing_m"], strict=True)
    ]
    absent = [one for one in slices if not one.folder.is_dir()]
    if absent:
        raise InputError(
            f"{absent[0].folder} does not exist: slice {absent[0].number} is not certified. Every slice must be. Run "
            f"'scan2cut slice {plan['fruit']}' and see its reason."
        )
    write_programme(folder / PROGRAMME_FOLDER, plan["fruit"], slices)


if __name__ == "__main__":
    die_with_parent()
    try:
        main(Path(sys.argv[1]))
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_BAD_INPUT) from None
