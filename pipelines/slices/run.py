"""Run a plan of slices side by side, and join the certified cuts to one programme for the arm."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines.dvc.commands import CommandError, run_dvc
from pipelines.many.batch import capacity, run_batch
from pipelines.project import Project
from pipelines.runs.run_summary import RunResult
from pipelines.scans.register import Request, known_raw_file
from pipelines.slices.plan import FOLDER, SlicePlan, body_of, halve_steps, known_motion, start_from
from stages.export.certificate import Certificate
from stages.export.export_files import read_document
from stages.export.programme import PROGRAMME, PROGRAMME_FOLDER, SliceOfProgramme, write_programme
from stages.runtime.artifacts import read_metrics
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping, write_bytes_atomic
from stages.runtime.scan_file import PIPELINE_FILE_NAME
from stages.shared.slicing import standing_box

_MEMORY_GB = 1.0
"""Peak memory of one slice."""
_STALLED = "Shorten dt"
"""Part of the simulator's advice where Newton's method stalls, as it may when a thin slice comes free."""


def _hardest(plan: SlicePlan) -> str:
    """Return the slice with the largest cut, whose motion is searched for first if none is known."""
    cuts = plan.division.cuts
    return plan.scans[max(range(len(cuts)), key=lambda index: cuts[index].area_m2)]


def run_slices(
    project: Project,
    plan: SlicePlan,
    say: Callable[[str], None],
    *,
    workers: int | None = None,
    force: bool = False,
) -> list[RunResult]:
    """Bring all slices up to date; the fruit must be calibrated. Return results in the order of the cuts.

    Each slice starts its search from the fruit's own optimised motion. If there is none, the slice with the largest cut
    is searched in full first, and the others start from its motion.
    """
    bound = capacity(_MEMORY_GB, workers)

    def run(scans: list[str]) -> list[RunResult]:
        requests = [Request(known_raw_file(project, scan), scan_id=scan) for scan in scans]
        return run_batch(project, requests, scans_at_once=min(bound.scans, len(scans)), say=say, force=force)

    motion, first = known_motion(project, plan.fruit), _hardest(plan)
    results: dict[str, RunResult] = {}
    if not motion:
        results[first] = run([first])[0]
        motion = known_motion(project, first)
    rest = [scan for scan in plan.scans if scan not in results]
    for scan in rest if motion else ():
        start_from(project, scan, motion)
    if rest:
        results |= dict(zip(rest, run(rest), strict=True))
    stalled = [scan for scan, result in results.items() if result.error and _STALLED in result.error]
    for scan in stalled:
        say(f"{scan}: the simulation stalled; again with steps half as long.")
        halve_steps(project, scan)
    if stalled:
        results |= dict(zip(stalled, run(stalled), strict=True))
    return [results[scan] for scan in plan.scans]


def slice_metrics(project: Project, scan: str, stage: str) -> dict[str, Any]:
    """Return a stage's metrics of one slice; empty if it has none."""
    path = project.scan_dir(scan) / stage / "metrics.json"
    return read_metrics(path) if path.is_file() else {}


def refused_slices(project: Project, plan: SlicePlan) -> dict[int, str]:
    """Return the slices without a certified motion by number, with the reason."""
    refused = {}
    for number, scan in enumerate(plan.scans, start=1):
        export = slice_metrics(project, scan, "export")
        if not export.get("certified"):
            refused[number] = str(export.get("verdict") or "it has no exported motion")
    return refused


def make_programme(project: Project, plan: SlicePlan) -> tuple[Path, str]:
    """Join the slices' certified motions by the DVC stage `programme`; return folder and verdict.

    All slices must be certified. The stage is in slices/dvc.yaml, so that `dvc repro` makes the programme again and
    `scan2cut push` sends it.
    """
    folder = project.scan_dir(plan.fruit) / FOLDER
    parent, path = folder / PROGRAMME_FOLDER, folder / PIPELINE_FILE_NAME
    text = _pipeline_text(project, plan, folder)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_bytes_atomic(path, text.encode())
    try:
        run_dvc(project, "repro", "--single-item", str(path.relative_to(project.root)))
    except CommandError as error:
        raise InputError(
            f"The programme of {plan.fruit} could not be made: {error} Run 'scan2cut slice {plan.fruit}' again."
        ) from error
    made = parent / "certified" if (parent / "certified").is_dir() else parent / "refused"
    return made, str(read_document(made / PROGRAMME)["certificate"]["verdict"])


def _pipeline_text(project: Project, plan: SlicePlan, folder: Path) -> str:
    """Return slices/dvc.yaml: one stage that reads the plan and every slice's export."""
    own = folder.relative_to(project.root)
    exports = [project.scan_dir(scan).relative_to(project.root) / "export" / "cut" for scan in plan.scans]
    of_export = read_mapping(project.template)["stages"]["export"]["deps"]
    code = [dep for dep in of_export if not dep.startswith("data/")]
    stage = {
        "desc": "certified motions of all slices → one certified programme for the arm",
        "wdir": "/".join(".." for _ in own.parts),
        "cmd": f"exec python -m stages.export.programme {own}",
        "deps": [str(own / "plan.json"), *map(str, exports), *code],
        "outs": [{str(own / PROGRAMME_FOLDER): {"persist": True}}],
    }
    head = "# Written by `scan2cut slice`. Don't edit it.\n"
    return head + yaml.safe_dump({"stages": {"programme": stage}}, sort_keys=False, allow_unicode=True)


def programme_of(
    project: Project, plan: SlicePlan, folders: Sequence[Path], parent: Path
) -> tuple[Path, Certificate]:
    """Join certified exports, one per slice of the plan, below `parent`; return folder and certificate."""
    body, division = body_of(project, plan.fruit, plan.of), plan.division
    slices = []
    for piece, folder in zip(division.cuts, folders, strict=True):
        low, high = standing_box(body, division, piece)
        slices.append(SliceOfProgramme(piece.number, folder, piece.thickness_m, low, high))
    return write_programme(parent, plan.fruit, slices)
