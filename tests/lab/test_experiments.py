"""The experiments, coarse: each writes its table and figure, and a second run goes on from what is kept."""

import json
import re
import shutil
import time
from importlib import import_module
from pathlib import Path

import pytest

from lab.paper.kept import Kept
from lab.paper.page import PAGE, spent_s, table, write_part
from lab.real_logs.real_data import VARIABLE, real_data

NAMES = ("two_parameters", "ranks", "losses", "duration", "velocity", "nodal_motion", "slicing")
REAL = ("prism", "geometry")
"""Those that need the real data."""
READER = "real_logs"
"""Reads what another command has fitted."""


def runs():
    missing = real_data() is None
    skip = pytest.mark.skipif(missing, reason="the real data is not here (lab/notes/real_data.md)")
    return [*NAMES, *(pytest.param(name, marks=skip) for name in REAL)]


@pytest.mark.slow
@pytest.mark.parametrize("name", runs())
def test_an_experiment_writes_its_part_of_the_page(name, tmp_path):
    experiment = import_module(f"lab.paper.{name}")
    page = tmp_path / "experiments.md"
    shutil.copy(PAGE, page)
    where = {"page": page, "folder": tmp_path, "pictures": tmp_path}
    write_part(name, "empty", page)
    experiment.main(experiment.COARSE, **where)
    part = page.read_text().partition(f"<!-- {name} -->")[2].partition("<!-- end")[0]
    assert "|---|" in part and not re.search(r"\bnan\b", part)
    assert (tmp_path / f"experiment_{name}.png").stat().st_size > 3000
    kept = (tmp_path / f"{name}.json").read_bytes()
    before = page.read_text()
    experiment.main(experiment.COARSE, **where)
    assert (tmp_path / f"{name}.json").read_bytes() == kept, "what is done is not done again"
    assert page.read_text() == before


def test_every_experiment_has_its_part_and_every_part_its_command():
    folder = Path(import_module("lab.paper").__file__).parent
    commands = {
        path.stem
        for path in folder.glob("*.py")
        if any(word in path.read_text() for word in ("command(NAME", "write_part(NAME"))
    }
    assert commands == {*NAMES, *REAL, READER}
    text = PAGE.read_text()
    for name in (*NAMES, *REAL, READER):
        assert f"python -m lab.paper.{name}" in text
        assert text.count(f"<!-- {name} -->") == text.count(f"<!-- end of {name} -->") == 1


@pytest.mark.parametrize("name", REAL)
def test_without_real_data_it_says_what_it_needs(name, tmp_path, monkeypatch):
    experiment = import_module(f"lab.paper.{name}")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    where = {"page": tmp_path / "page.md", "folder": tmp_path / "kept", "pictures": tmp_path}
    with pytest.raises(SystemExit, match=r"is not in .*, the folder of SCAN2CUT_REAL_DATA"):
        experiment.main(experiment.COARSE, **where)
    assert not (tmp_path / "page.md").exists()


def test_real_logs_are_those_of_the_fits_and_missing_ones_are_named(tmp_path):
    experiment = import_module(f"lab.paper.{READER}")
    page = tmp_path / "experiments.md"
    shutil.copy(PAGE, page)
    size, where = experiment.Size(tmp_path), {"page": page, "folder": tmp_path, "pictures": tmp_path}
    for i, name in enumerate(experiment.CUTS):
        with pytest.raises(SystemExit, match=f"predict_real_logs {name}"):
            experiment.main(size, **where)
        (tmp_path / name).mkdir()
        found = {"fit": 0.01 * (i + 1), "forecast": 0.2, "hold": 0.3} | ({"second": 0.4} if not i else {})
        (tmp_path / name / "guided.json").write_text(json.dumps(found))
    experiment.main(size, **where)
    text = page.read_text()
    assert "| apple | 1.0 % | 20.0 % | 30.0 % | 40.0 % | – | 8.3 % |" in text
    assert "| banana | – | – | – | – | – | 16.0 % |" in text
    assert "| potato | 3.0 % | 20.0 % | 30.0 % | – | – | – |" in text
    assert (tmp_path / "experiment_real_logs.png").stat().st_size > 3000


def test_the_page_states_the_time_of_all_and_it_is_within_the_limit():
    text = PAGE.read_text()
    stated = re.search(r"All of them together: (\d+) CPU-minutes", text)
    assert stated and abs(float(stated[1]) - spent_s(text) / 60.0) <= 0.5
    assert spent_s(text) <= 3 * 3600.0
    own = text.partition("<!-- two_parameters -->")[2].partition("<!-- end")[0]
    assert 0.0 < spent_s(own) <= 20 * 60.0


def test_times_are_summed_over_tables_and_sentences():
    one = table(["method", "CPU s", "other"], [["a", 12, 5], ["b", "–", 5], ["c", "3", 5]])
    other = table(["method", "points"], [["a", 1000]])
    assert spent_s(f"{one}\n\n7 CPU-seconds.\n\n{other}\n\n{one}") == 12 + 3 + 7 + 12 + 3


def test_a_page_without_the_part_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(SystemExit, match="has no part for losses"):
        write_part("losses", "text", page)
    assert page.read_text() == "nothing here\n"


def test_a_step_that_fails_is_not_kept(tmp_path):
    kept = Kept("some", tmp_path)
    assert kept.once("first", "small", lambda: {"value": 1.0})["value"] == 1.0

    def fail():
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        kept.once("second", "small", fail)
    again = Kept("some", tmp_path)
    assert again.once("first", "small", fail)["value"] == 1.0
    assert again.once("second", "small", lambda: {"value": 2.0})["value"] == 2.0
    assert set(json.loads((tmp_path / "some.json").read_text())) == {"first", "second"}
    assert again.once("second", "large", lambda: {"value": 3.0})["value"] == 3.0, "another size is other work"


def test_what_a_killed_run_took_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.paper.kept.TELL_S", 0.0)

    def burn(kept, *, then):
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        kept.tell(0.5, "half")
        return then()

    def fail():
        raise RuntimeError("killed")

    first = Kept("some", tmp_path)
    with pytest.raises(RuntimeError):
        first.once("step", "small", lambda: burn(first, then=fail))
    other = Kept("some", tmp_path)
    assert other.once("other", "small", dict)["cpu_s"] < 0.3, "of this step only"
    with pytest.raises(RuntimeError):
        other.once("step", "small", lambda: burn(other, then=fail))
    last = Kept("some", tmp_path)
    assert last.once("step", "small", lambda: burn(last, then=dict))["cpu_s"] >= 0.6
    assert set(json.loads((tmp_path / "some.json").read_text())) == {"other", "step"}
