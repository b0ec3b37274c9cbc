"""`make nightly`, or `python -m scripts.nightly`: damaged inputs, an hour of kills, and every test (hours).

Writes what each part said to build/nightly/, and build/nightly/summary.txt: date, commit and the last line of each.
Arguments are passed on to pytest, to leave something out.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = Path("build/nightly")
KILLS = FOLDER / "kills"
"""A project and a count of its own every night: the tally in git is for counts that are to be added."""
KILL_S = 3600
"""For the kills; the count goes on to a thousand if the machine is that fast."""


def parts(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Name → the module that is run, and its arguments."""
    places = ["--folder", str(KILLS), "--tally", f"{KILLS}.json"]
    return {
        "fuzz": ["scripts.fuzz_inputs", "1000"],
        "kills": ["scripts.kill_stages", "1000", *places, "--for-s", str(KILL_S)],
        "tests": ["pytest", "-q", "--durations", "25", "-rfEs", *arguments],
    }


def run_part(name: str, module: Sequence[str], folder: Path) -> tuple[int, str]:
    """Exit code, and the line of the summary; what it says goes to <name>.txt."""
    began_s = time.monotonic()
    with (folder / f"{name}.txt").open("wb") as file:
        command = [sys.executable, "-m", *module]
        code = subprocess.run(
            command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode
    lines = (folder / f"{name}.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    counts = [line for line in lines if line[:1].isdigit()]
    minutes = (time.monotonic() - began_s) / 60.0
    last = (counts or lines or ["it said nothing"])[-1]
    return code, f"{name}: {'ok' if code == 0 else f'FAILED (exit code {code})'}, {minutes:.0f} min. {last}"


def nightly(chosen: dict[str, list[str]], folder: Path) -> int:
    """Run the parts one after another; 1 if one failed."""
    folder.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit or 'unknown'}"]
    codes = []
    for name, module in chosen.items():
        code, line = run_part(name, module, folder)
        codes.append(code)
        lines.append(line)
        sys.stdout.write(f"{line}\n")
        (folder / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(any(codes))


if __name__ == "__main__":
    (ROOT / f"{KILLS}.json").unlink(missing_ok=True)
    raise SystemExit(nightly(parts(sys.argv[1:]), ROOT / FOLDER))
