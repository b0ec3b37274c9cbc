"""Report page of a plan of slices: GO or NO-GO, the division, force of each slice, time and work, replay."""

import json
from pathlib import Path
from typing import Any

from pipelines.project import Project
from pipelines.report.page import (
    Block,
    Code,
    Curve,
    Figures,
    Link,
    Note,
    Picture,
    Plot,
    Section,
    Table,
    render_page,
)
from pipelines.slices.learning import read_executed
from pipelines.slices.plan import FOLDER, PICTURE, SlicePlan, body_of, read_plan
from pipelines.slices.run import refused_slices, slice_metrics
from stages.export.programme import PROGRAMME
from stages.runtime.artifacts import read_table
from stages.runtime.errors import InputError
from stages.runtime.files import write_bytes_atomic
from stages.shared.falling_slices import falling_slices

_PAGE = "plan.html"
_POINTS = 150
"""Points per curve."""
_REPLAY = (
    "Replay of the plan. Pieces and order are computed; how the slices fall is drawn, not simulated. The simulated cut "
    "of each slice is in its viewer."
)


def build_plan_page(project: Project, fruit: str) -> Path:
    """Write slices/plan.html of the fruit and return its path."""
    plan = read_plan(project, fruit)
    folder = project.scan_dir(fruit) / FOLDER
    sections = [
        Section("decision", "Decision", _decision(project, plan, folder)),
        Section("division", "The slices", _division(project, plan, folder)),
        Section("force", "Force of each slice", _force(project, plan, folder)),
    ]
    title = f"scan2cut: {fruit}, {len(plan.scans)} cuts"
    subtitle = f"{plan.of} fruit, {len(plan.division.pieces)} pieces"
    page = folder / _PAGE
    write_bytes_atomic(page, render_page(title, subtitle, sections).encode())
    return page


def _decision(project: Project, plan: SlicePlan, folder: Path) -> list[Block]:
    refused = refused_slices(project, plan)
    programme = folder / "programme" / "certified" / PROGRAMME
    document: dict[str, Any] = (
        json.loads(programme.read_text(encoding="utf-8")) if programme.is_file() else {}
    )
    if refused:
        reasons = " ".join(f"Slice {number}: {reason}" for number, reason in refused.items())
        note = Note(
            f"NO-GO. {len(refused)} of {len(plan.scans)} slices have no certified motion. {reasons}", "bad"
        )
    elif not document:
        note = Note(
            "NO-GO. The programme of all slices is not certified; see programme/refused/REASON.txt.", "bad"
        )
    else:
        calibrated = document["certificate"]["force_calibrated"]
        verdict = document["certificate"]["verdict"]
        note = Note(
            f"{'GO' if calibrated else 'GO only after a probe cut'}. {verdict}",
            "good" if calibrated else "warning",
        )
    motions = [slice_metrics(project, scan, "optimize") for scan in plan.scans]
    work = sum(float(motion.get("work_optimized_j") or 0.0) for motion in motions)
    cutting = sum(float(motion.get("whole_duration_s") or 0.0) for motion in motions)
    peaks = [float(motion.get("peak_force_optimized_n") or 0.0) for motion in motions]
    hardest = max(range(len(peaks)), key=lambda index: peaks[index])
    total = document.get("total_s")
    items = [
        ("slices", str(len(plan.scans)), f"{len(plan.division.not_cut)} planes not cut"),
        ("total time", "not known" if total is None else f"{total:.0f} s", f"{cutting:.1f} s of it cutting"),
        ("work", f"{work:.1f} J", "of the knife in all cuts"),
        ("hardest slice", str(hardest + 1), _why(plan, peaks, hardest)),
    ]
    blocks: list[Block] = [note, Figures(items)]
    if document:
        command = f"python {programme.parent.relative_to(project.root) / 'run_slices.py'}"
        blocks.append(Code(command, "Dry run of the programme; with --execute the arm moves."))
    return blocks


def _why(plan: SlicePlan, peaks: list[float], hardest: int) -> str:
    """Say why a slice is the hardest: its area, or else its force per area."""
    cuts = plan.division.cuts
    largest = max(range(len(cuts)), key=lambda index: cuts[index].area_m2)
    area = f"{1e4 * cuts[hardest].area_m2:.1f} cm²"
    peak = f"peak {peaks[hardest]:.0f} N"
    if hardest == largest:
        return f"{peak}; the largest cut, {area}"
    return f"{peak} on {area}; slice {largest + 1} is larger, {1e4 * cuts[largest].area_m2:.1f} cm²"


def _division(project: Project, plan: SlicePlan, folder: Path) -> list[Block]:
    rows = []
    for piece in plan.division.pieces:
        scan = plan.scans[piece.number - 1] if piece.number <= len(plan.scans) else ""
        motion = slice_metrics(project, scan, "optimize") if scan else {}
        export = slice_metrics(project, scan, "export") if scan else {}
        rows.append(
            (
                piece.number,
                1e3 * piece.thickness_m,
                1e4 * piece.area_m2 if scan else None,
                1e6 * piece.volume_m3,
                motion.get("mean_force_optimized_n"),
                motion.get("peak_force_optimized_n"),
                motion.get("whole_duration_s"),
                export.get("outcome", "not run") if scan else "what remains",
            )
        )
    header = (
        "piece",
        "thickness [mm]",
        "cut area [cm²]",
        "volume [cm³]",
        "mean force [N]",
        "peak [N]",
        "cut [s]",
        "result",
    )
    body = body_of(project, plan.fruit, plan.of)
    blocks: list[Block] = [
        Picture((folder / PICTURE).read_bytes(), "The planes in the fruit, and the pieces moved apart."),
        Table(header, rows),
        *(Note(sentence, "warning") for sentence in plan.division.not_cut_sentences),
        Picture(falling_slices(body, plan.division), _REPLAY),
        *(
            Link(f"../../{scan}/viewer.html", f"slice {number}: simulated cut in 3D")
            for number, scan in enumerate(plan.scans, start=1)
            if (project.scan_dir(scan) / "viewer.html").is_file()
        ),
    ]
    return blocks


def _force(project: Project, plan: SlicePlan, folder: Path) -> list[Block]:
    """Return the force of each slice over its time, and the picture of what was learnt."""
    curves: list[Curve] = []
    longest: list[float] = []
    for number, scan in enumerate(plan.scans, start=1):
        try:
            profile = read_table(project.scan_dir(scan), "optimize/profile")
        except InputError:
            continue
        step = max(1, len(profile) // _POINTS)
        time, force = profile["time_s"].to_list()[::step], profile["optimized_n"].to_list()[::step]
        longest = time if len(time) > len(longest) else longest
        curves.append(Curve(f"slice {number}", force))
    blocks: list[Block] = []
    if curves:
        same = [
            Curve(c.label, [*c.values, *[None] * (len(longest) - len(c.values))], colour=i % 8)
            for i, c in enumerate(curves)
        ]
        blocks.append(
            Plot(
                "Predicted force of each cut", "time [s]", "force on the knife [N]", longest, same, wide=True
            )
        )
    if read_executed(project, plan.fruit) and (folder / "force.png").is_file():
        caption = (
            "Predicted band and measured force of the executed slices; each band is what was known before."
        )
        blocks.append(Picture((folder / "force.png").read_bytes(), caption))
    else:
        blocks.append(
            Note("No slice was executed yet: scan2cut executed SCAN --slice 1 --log FILE.", "plain")
        )
    return blocks
