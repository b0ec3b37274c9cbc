"""Throughput of many scans at once, with stand-in stages: python -m lab.bench.many_scans [COUNT ...]

With --target STAGE only that stage and what it needs. With --postgresql Prefect keeps its history in PostgreSQL, which
is started for this, instead of SQLite.

Each stand-in stage waits 2 s ("slow") and writes the smallest valid artifacts, so that what is measured is the
overhead of DVC, Prefect and the pool. Prints a row per number of scans: wall and CPU seconds, scans per minute,
overhead a stage.
"""

import argparse
import contextlib
import os
import resource
import tempfile
import time
from pathlib import Path

from pipelines.dvc.pipeline_file import needed_for, read_template
from pipelines.dvc.stage import bring_up_to_date
from pipelines.many.batch import DATABASE_VARIABLE, run_batch
from pipelines.project import Project, apply_environment
from pipelines.scans.register import Request
from tests.pipelines.postgresql import postgresql
from tests.pipelines.tiny_project import make_tiny_project

COUNTS = (1, 2, 4, 8)
STAGE_S = 2.0
"""What the stand-in takes when the scan says slow."""


def cpu_s() -> float:
    """CPU time of this process and of all children that have ended [s]."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def measure(
    project: Project, count: int, name: str = "batch", target: str | None = None
) -> tuple[float, float]:
    """Wall and CPU seconds for this many new scans, all at once."""
    stages = [entry.name for entry in read_template(project.template)]
    requests = []
    for number in range(count):
        scan = project.root / f"{name}{count}_{number}.ply"
        scan.write_text(" ".join([f"scan {number} of {count}", *(f"slow-{stage}" for stage in stages)]))
        requests.append(Request(scan))
    begun, cpu = time.monotonic(), cpu_s()
    results = run_batch(project, requests, scans_at_once=count, say=lambda sentence: None, target=target)
    errors = [result.error for result in results if result.error]
    if errors:
        print(f"{len(errors)} of {count} failed: {errors[0]}")
    return time.monotonic() - begun, cpu_s() - cpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("counts", type=int, nargs="*", default=COUNTS)
    parser.add_argument("--target")
    parser.add_argument("--postgresql", action="store_true")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.postgresql:
            os.environ[DATABASE_VARIABLE] = stack.enter_context(postgresql())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="scan2cut-many-"))
        project = make_tiny_project(Path(folder))
        apply_environment(project)
        os.chdir(project.root)
        entries = read_template(project.template)
        if options.target:
            entries = needed_for(options.target, entries)
        stages = len(entries)
        measure(project, 1, "first", options.target)
        database = "PostgreSQL" if options.postgresql else "SQLite"
        print(f"{stages} stages of {STAGE_S:g} s waiting; {database}; load average {os.getloadavg()[0]:.1f}")
        print("scans  wall [s]  CPU [s]  scans/min  overhead per stage [s]")
        for count in options.counts:
            wall, cpu = measure(project, count, target=options.target)
            overhead = wall / stages - STAGE_S
            print(
                f"{count:5}  {wall:8.1f}  {cpu:7.1f}  {60 * count / wall:9.1f}  {overhead:21.2f}", flush=True
            )
        scan_id, cpu, begun = project.scan_ids()[0], cpu_s(), time.monotonic()
        for entry in entries:
            bring_up_to_date(project, scan_id, entry)
        each, each_cpu = (time.monotonic() - begun) / stages, (cpu_s() - cpu) / stages
        print(f"a fresh stage: {each:.2f} s, {each_cpu:.2f} CPU-s; load average {os.getloadavg()[0]:.1f}")
        os.chdir("/")


if __name__ == "__main__":
    main()
