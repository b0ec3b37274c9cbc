"""Run a plan of slices: the fruit up to its calibration, then the slices side by side."""

from collections.abc import Callable

from pipelines.many.batch import capacity, run_batch
from pipelines.project import Project
from pipelines.runs.run_summary import RunResult
from pipelines.scans.register import Request, known_raw_file
from pipelines.slices.plan import SlicePlan, halve_steps, known_motion, start_from

_MEMORY_GB = 1.0
"""Peak memory of one slice."""
_STALLED = "Shorten dt"
"""Part of the simulator's advice where Newton's method stalls, as it may when a thin slice comes free."""


def hardest(plan: SlicePlan) -> str:
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

    motion, first = known_motion(project, plan.fruit), hardest(plan)
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
