"""`make nightly` leaves nothing out, and its summary says when, of what, and what failed."""

import configparser
import os
import subprocess
import tomllib
from pathlib import Path

from lab.faults import nightly
from lab.faults.nightly import Night, Result, files_with_slow_tests, parts

ROOT = Path(__file__).parents[2]


def passed_on(name: str) -> bool:
    """Whether a variable is one that make hands to what it starts, as when these tests run under `make test`."""
    return "MAKE" in name or name in ("PYTEST_ARGS", "NIGHTLY_ARGS")


def test_it_leaves_no_test_out():
    """Neither by its own arguments nor by those of pyproject.toml; and make passes only what it is given."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    chosen = parts(["tests/test_x.py"])
    words = [word for name in ("fast tests", "slow tests/test_x.py") for word in chosen[name]]
    assert [words[i + 1] for i, word in enumerate(words) if word == "-m"] == ["not slow", "slow"]
    assert words[-1] == "tests/test_x.py" and words.count("tests/test_x.py") == 1
    assert not {"-k", "--ignore", "--deselect"} & {*words, *options["addopts"].split()}
    assert "-m" not in options["addopts"].split()
    assert options["testpaths"] == ["tests"]
    assert not any((ROOT / name).exists() for name in ("pytest.ini", "tox.ini"))
    assert not configparser.ConfigParser().read(ROOT / "setup.cfg")
    made = subprocess.run(
        ["make", "--dry-run", "--old-file=setup", "nightly"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not passed_on(name)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.split()[-2:] == ["-m", "lab.faults.nightly"]


def test_every_file_with_slow_tests_is_a_part():
    found = files_with_slow_tests()
    of_its_own, of_a_helper = "tests/pipelines/test_kills.py", "tests/stages/export/test_export_execution.py"
    assert {of_its_own, of_a_helper} < set(found)
    assert "tests/test_nightly.py" not in found
    assert {f"slow {file}" for file in found} < set(parts(found))
    assert not any("add_marker" in path.read_text() for path in (ROOT / "tests").rglob("conftest.py"))


GOOD = ["timeit", "-n", "1", "-r", "1", "pass"]
BAD = [*GOOD[:-1], "raise SystemExit(5)"]


def test_the_summary(tmp_path):
    assert Night({"good": GOOD}, tmp_path, "code").run() == 0
    assert Night({"good": GOOD, "bad tests/x.py": BAD}, tmp_path, "code").run() == 1
    first, of_good, of_bad = (tmp_path / "summary.txt").read_text().splitlines()
    assert " UTC, commit " in first and first[:2] == "20" and first.endswith("code code")
    assert of_good.startswith("good: ok") and "1 loop" in of_good
    assert of_bad.startswith("bad tests/x.py: FAILED (exit code 1)")
    assert (tmp_path / "bad_tests_x_py.txt").exists() and "1 loop" in (tmp_path / "good.txt").read_text()


def test_it_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    ran = []

    def noted(name, module, folder):
        ran.append(name)
        return Result(int(module is BAD), "1 thing", 0.0, str(folder))

    monkeypatch.setattr(nightly, "run_part", noted)
    chosen = {"one": GOOD, "two": BAD, "three": GOOD}
    assert Night(chosen, tmp_path, "code").run(end_s=0.0) == 0 and ran == []
    assert "3 of 3 parts are left" in capsys.readouterr().out
    assert Night(chosen, tmp_path, "code").run(only="t") == 1
    assert sorted(ran) == ["three", "two"]
    summary = (tmp_path / "summary.txt").read_text()
    assert "one: not run yet" in summary and "three: ok" in summary
    assert Night(chosen, tmp_path, "code").run(processes=2, only="one") == 1, "what has failed stays failed"
    ran.clear()
    Night(chosen, tmp_path, "code").run()
    assert ran == ["two"], "what has passed on this code is not run again"
    ran.clear()
    Night(chosen, tmp_path, "code", again=True).run()
    Night(chosen, tmp_path, "another").run()
    assert ran == 2 * ["one", "two", "three"]
