"""`python -m scripts.break_fixes [WORDS]`: take out one fix at a time and see which test notices.

The fixes are in scripts/broken_fixes/, each with the text that takes it out and the tests that should fail then.
Works on a copy of the last commit, so that nothing here changes. WORDS choose the fixes whose item and description have
all of them. PYTEST_ADDOPTS='-m "not slow"' leaves slow tests out.
Exit code 1 if there is a fix that no test misses.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from stages.runtime.exit_codes import EXIT_BAD_INPUT
from stages.runtime.yaml_file import parse_yaml

ROOT = Path(__file__).parents[1]
LISTS = ROOT / "scripts" / "broken_fixes"
LIMIT_S = 600.0
"""A test that waits for ever has noticed too."""


def read_fixes() -> list[dict[str, Any]]:
    """All of them, in the order of their items."""
    fixes = [fix for path in LISTS.glob("*.yaml") for fix in parse_yaml(path.read_text(encoding="utf-8"))]
    return sorted(fixes, key=lambda fix: int(fix["item"]))


def broken(text: str, fix: dict[str, Any]) -> str:
    """The text of a file without the fix."""
    if text.count(fix["old"]) != 1:
        raise ValueError(f"{fix['file']} has {text.count(fix['old'])} times {fix['old']!r}; correct {LISTS}")
    return text.replace(fix["old"], fix["new"])


def seen_by(copy: Path, fix: dict[str, Any]) -> list[str]:
    """Names of the tests that fail when the fix is taken out of this copy of the project."""
    path = copy / fix["file"]
    whole = path.read_text(encoding="utf-8")
    path.write_text(broken(whole, fix), encoding="utf-8")
    try:
        return _failed(copy, shlex.split(fix["tests"]))
    finally:
        path.write_text(whole, encoding="utf-8")
        _end_processes(copy.parent)


def _failed(copy: Path, tests: list[str]) -> list[str]:
    options = ["-q", "--tb=line", "-rfE", "-p", "no:cacheprovider", f"--basetemp={copy.parent / 'temporary'}"]
    said = copy.parent / "said.txt"
    with said.open("wb") as file:
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            run.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
            return [f"no end within {LIMIT_S:.0f} s"]
    text = said.read_text(encoding="utf-8", errors="replace")
    if run.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {run.returncode}: {' '.join(text.split())[-300:]}")
    return list(dict.fromkeys(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+(?:\[.*?\])?)", text, re.M)))


def _end_processes(folder: Path) -> None:
    """End what a broken fix has left behind: processes that work in this folder."""
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder):
                process.kill()
        except psutil.Error:
            continue


def outcomes(fixes: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[str] | Exception]]:
    """Every fix with the tests that notice that it is gone."""
    with tempfile.TemporaryDirectory(prefix="scan2cut-break-") as folder:
        copy = Path(folder) / "copy"
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, copy], check=True)
        for library in ROOT.glob("*.so"):
            shutil.copy(library, copy)
        for fix in fixes:
            try:
                yield fix, seen_by(copy, fix)
            except (RuntimeError, ValueError) as error:  # said by the caller, and the next one is tried
                yield fix, error


def main(words: list[str]) -> int:
    """Print a line per fix."""
    chosen = [fix for fix in read_fixes() if all(word in f"{fix['item']} {fix['out']}" for word in words)]
    if not chosen:
        sys.stderr.write(f"No fix has the words {' '.join(words)}. They must stand in {LISTS}. Look there.\n")
        return EXIT_BAD_INPUT
    missed = 0
    for fix, tests in outcomes(chosen):
        found = tests if isinstance(tests, list) else []
        missed += not found
        said = ", ".join(found) or ("NO TEST FAILS" if found is tests else f"NOT TRIED ({tests})")
        sys.stdout.write(f"{fix['item']:>2}  {fix['out']}: {said}\n")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
