"""`make nightly`, or `python -m lab.faults.nightly`: damaged inputs, kills, and every test, in parts (hours).

    python -m lab.faults.nightly [--for-s 3600] [--processes 2] [--kill-s 3600] [--only WORDS] [--again]

The fast tests are one part, every file with slow tests is one, so that the whole fits into several evenings: parts that
passed on this code are not run again, and `--for-s` begins none after so many seconds. What each part said goes to
build/nightly/<part>.txt; build/nightly/summary.txt has date and last line of each.
"""

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from stages.runtime.files import sha256_of_path, sha256_of_value, write_bytes_atomic

ROOT = Path(__file__).parents[2]
FOLDER = Path("build/nightly")
KILLS = FOLDER / "kills"
"""A project and a count of its own every night: the tally in git is for counts that are to be added."""
KILL_S = 3600.0
"""For the kills, unless another time is given; the count goes on to a thousand if the machine is that fast."""
CODE = ("pipelines", "stages", "disect_sim", "scripts", "tests", "benchmarks", "data/sample", "params.yaml")
"""What a result belongs to."""
SLOW = "mark" + ".slow"
"""How a test is marked; not in one piece, so that this file and its test are none."""


@dataclass(frozen=True)
class Result:
    """How a part ended."""

    exit_code: int
    line: str
    """The last thing it counted."""
    minutes: float
    day: str

    def sentence(self, name: str) -> str:
        """For the summary."""
        end = "ok" if self.exit_code == 0 else f"FAILED (exit code {self.exit_code})"
        return f"{name}: {end}, {self.minutes:.1f} min, {self.day}. {self.line}"


def parts(slow_files: Sequence[str], kill_s: float = KILL_S) -> dict[str, list[str]]:
    """Name → the module that is run, and its arguments."""
    places = ["--folder", str(KILLS), "--tally", f"{KILLS}.json"]
    pytest = ["pytest", "-q", "--durations", "10", "-rfEs"]
    return {
        "fuzz": ["lab.faults.fuzz_inputs", "1000"],
        "fast tests": [*pytest, "-m", "not slow"],
        **{f"slow {file}": [*pytest, "-m", "slow", file] for file in slow_files},
        "kills": ["lab.faults.kill_stages", "1000", *places, "--for-s", str(kill_s)],
    }


def files_with_slow_tests() -> list[str]:
    """Relative to the project: those that mark a test so, or take the mark from a helper beside them.

    pytest could say it too, after a minute of imports.
    """
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    tests = {path for path in texts if path.name.startswith("test_")}
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in texts.keys() - tests
        if SLOW in texts[path]
    ]
    chosen = [path for path in tests if any(word in texts[path] for word in (SLOW, *modules))]
    return sorted(str(path.relative_to(ROOT)) for path in chosen)


def code_key() -> str:
    """One number for the code that is tried."""
    return sha256_of_value({name: sha256_of_path(ROOT / name) for name in CODE})[:12]


def run_part(name: str, module: Sequence[str], folder: Path) -> Result:
    """What it says goes to <name>.txt."""
    began_s = time.monotonic()
    path = folder / f"{re.sub('[^a-z0-9_]+', '_', name.lower())}.txt"
    with path.open("wb") as file:
        command = [sys.executable, "-m", *module]
        code = subprocess.run(
            command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    counts = [line for line in lines if line[:1].isdigit()]
    minutes = round((time.monotonic() - began_s) / 60.0, 1)
    last = (counts or lines or ["it said nothing"])[-1]
    return Result(code, last, minutes, f"{datetime.now(UTC):%Y-%m-%d}")


class Night:
    """The parts, and the results that are known of this code."""

    def __init__(
        self, chosen: Mapping[str, list[str]], folder: Path, code: str, *, again: bool = False
    ) -> None:
        self.chosen, self.folder, self.code = chosen, folder, code
        self.lock = threading.Lock()
        self.state = folder / "state.json"
        folder.mkdir(parents=True, exist_ok=True)
        known = (
            json.loads(self.state.read_text(encoding="utf-8")) if self.state.exists() and not again else {}
        )
        results = known.get("results", {}) if known.get("code") == code else {}
        self.results = {name: Result(**values) for name, values in results.items() if name in chosen}

    def open_parts(self) -> list[str]:
        """Those that have not passed yet."""
        return [name for name in self.chosen if name not in self.results or self.results[name].exit_code]

    def run(self, processes: int = 1, end_s: float = float("inf"), only: str = "") -> int:
        """Run what is open, `processes` parts at once, and begin none after `end_s`; 1 if one has failed."""

        def part(name: str) -> None:
            if time.monotonic() > end_s:
                return
            result = run_part(name, self.chosen[name], self.folder)
            with self.lock:
                self.results[name] = result
                self._write()
                sys.stdout.write(f"{result.sentence(name)}\n")
                sys.stdout.flush()

        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(part, [name for name in self.open_parts() if only in name]))
        self._write()
        left = len([name for name in self.chosen if name not in self.results])
        if left:
            sys.stdout.write(f"{left} of {len(self.chosen)} parts are left. The same command goes on.\n")
        return int(any(result.exit_code for result in self.results.values()))

    def _write(self) -> None:
        content = {
            "code": self.code,
            "results": {name: asdict(value) for name, value in self.results.items()},
        }
        write_bytes_atomic(self.state, json.dumps(content).encode())
        lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {_commit()}, code {self.code}"]
        lines += [
            self.results[name].sentence(name) if name in self.results else f"{name}: not run yet"
            for name in self.chosen
        ]
        write_bytes_atomic(self.folder / "summary.txt", ("\n".join(lines) + "\n").encode())


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return said or "unknown"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if a part failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--for-s", type=float, default=float("inf"), help="begin no part after so many seconds"
    )
    parser.add_argument("--kill-s", type=float, default=KILL_S, help="for the kills, once they have begun")
    parser.add_argument("--processes", type=int, choices=range(1, 65), default=2, metavar="N")
    parser.add_argument("--only", default="", help="parts with these letters in their name")
    parser.add_argument("--again", action="store_true", help="run what has passed on this code once more")
    options = parser.parse_args(arguments)
    end_s = time.monotonic() + options.for_s
    night = Night(
        parts(files_with_slow_tests(), options.kill_s), ROOT / FOLDER, code_key(), again=options.again
    )
    if not night.results:
        (ROOT / f"{KILLS}.json").unlink(missing_ok=True)
    return night.run(options.processes, end_s, options.only)


if __name__ == "__main__":
    raise SystemExit(main())
