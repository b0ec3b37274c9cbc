"""Memory of `scan2cut watch` and of its Prefect server while it runs scans: python -m lab.bench.watch_memory [COUNT]

Stand-ins of the stages, target clean, one scan at a time; so it is the watcher's own memory. Prints a row per ten scans
and the growth per scan over the second half of them.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.pipelines.tiny_project import make_tiny_project, write_scan
from tests.pipelines.watch_process import WatchProcess

COUNT, EVERY = 50, 10
LIMIT_S = 600.0


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    with tempfile.TemporaryDirectory(prefix="scan2cut-watch-") as name:
        folder, inbox = Path(name) / "project", Path(name) / "inbox"
        folder.mkdir()
        inbox.mkdir()
        project = make_tiny_project(folder)
        options = ("--target", "clean", "--settle-s", "0.2", "--workers", "1")
        rows: list[tuple[float, float]] = []
        print("scans  watcher [MB]  server [MB]")
        with WatchProcess(project, inbox, Path(name) / "said.txt", *options) as watcher:
            for number in range(count):
                write_scan(inbox, f"scan-{number}.json", "log")
                write_scan(inbox, f"scan-{number}.ply", f"good {number}")
                watcher.wait_until(partial(_finished, watcher, number + 1), LIMIT_S)
                rows.append(watcher.memory_mb())
                if (number + 1) % EVERY == 0 or number == 0:
                    print(f"{number + 1:5}  {rows[-1][0]:12.0f}  {rows[-1][1]:11.0f}", flush=True)
            done = sum(": done." in line for line in watcher.lines())
            watcher.end()
        half = count // 2
        own, server = ((rows[-1][i] - rows[half - 1][i]) / (count - half) for i in (0, 1))
        print(
            f"{done} of {count} done; over the last {count - half}: {own:+.2f} and {server:+.2f} MB per scan"
        )


def _finished(watcher: WatchProcess, count: int) -> bool:
    return len(watcher.finished()) >= count


if __name__ == "__main__":
    main()
