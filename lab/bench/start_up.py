"""CPU seconds before anything is computed: python -m lab.bench.start_up

Help, refusals, and a run in which every stage is fresh, in a project with stand-in stages. A fresh stage is the
difference between runs of all stages and of the first alone, over the stages between.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from pipelines.dvc.pipeline_file import read_template
from pipelines.project import Project
from tests.pipelines.tiny_project import environment, make_tiny_project, write_scan

ROUNDS = 3
"""The best is taken: others work on this machine too."""
FRESH_ROUNDS = 2
"""Of the runs in which all is fresh, in turn: each takes a third of a minute."""
QUICK = (
    ["--help"],
    ["run", "nothing.ply"],
    ["run", "picture.jpeg"],
    ["status", "nobody"],
    ["report", "nobody"],
    ["reproduce", "nobody"],
)
REFUSED = 2
RUN = """
import sys
from pathlib import Path
from pipelines.cli.main import this_project
from pipelines.runs.run_request import run_flow
from pipelines.runs.run_summary import RunResult
class Nobody:
    on_start = on_progress = on_finish = on_picture = lambda self, *given: None
result = RunResult(scan="apple")
run_flow(this_project(), result, Nobody(), force=False, verbose=False, target=sys.argv[1] or None)
if result.error is not None:
    raise RuntimeError(result.error)
"""


def children_s() -> float:
    """CPU time of all children that have ended [s]."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu_s(project: Project, *arguments: str, rounds: int = ROUNDS) -> float:
    """CPU time of Python with these arguments, the best of some rounds [s]."""
    best = float("inf")
    for _ in range(rounds):
        before = children_s()
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=project.root,
            env=environment(project),
            capture_output=True,
            check=False,
        )
        if done.returncode not in (0, REFUSED):
            raise SystemExit(f"{arguments} ended with {done.returncode}:\n{done.stderr.decode()}")
        best = min(best, children_s() - before)
    return best


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="scan2cut-start-") as folder:
        project = make_tiny_project(Path(folder))
        write_scan(project.root, "picture.jpeg", "good")
        write_scan(project.root, "apple.ply", "good")
        print(f"CPU seconds, best of {ROUNDS}; load average {os.getloadavg()[0]:.1f}")
        for arguments in QUICK:
            print(f"{cpu_s(project, '-m', 'pipelines.cli.main', *arguments):8.2f}  {' '.join(arguments)}")
        stages = [entry.name for entry in read_template(project.template)]
        first = cpu_s(project, "-m", "pipelines.cli.main", "run", "apple.ply", rounds=1)
        print(f"{first:8.2f}  a first run, {len(stages)} stand-in stages")
        pairs = [
            [cpu_s(project, "-c", RUN, target, rounds=1) for target in (stages[0], "")]
            for _ in range(FRESH_ROUNDS)
        ]
        alone, all_s = (min(pair[side] for pair in pairs) for side in (0, 1))
        print(f"{alone:8.2f}  a run of {stages[0]} alone, fresh")
        print(f"{all_s:8.2f}  a run of all stages, fresh")
        print(f"{(all_s - alone) / (len(stages) - 1):8.2f}  each further fresh stage")


if __name__ == "__main__":
    main()
