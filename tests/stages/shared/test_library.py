"""What earlier cuts of a material lead to expect, and what a log adds to that."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from disect_sim.parameters import MATERIALS
from pipelines.cli.main import app
from pipelines.project import Project
from pipelines.scans.cuts import FOLDER as IN_PROJECT
from pipelines.scans.cuts import add_cut, library_cuts, remove_cut
from stages.calibrate.material.posterior import Posterior, posterior_table, what_the_log_says
from stages.calibrate.material.unknowns import MaterialUnknowns
from stages.ingest.ingest import empty_table
from stages.runtime.artifacts import write_json, write_table
from stages.runtime.errors import InputError
from stages.runtime.params import merge_params
from stages.shared.input_files import LOGS_NOTE
from stages.shared.library.library import (
    _KNIFE_SPREAD,
    ANY_MATERIAL,
    FOLDER,
    FRUIT_SPREAD,
    NINETY,
    PRIORS,
    cut_spread,
    cuts_of,
    expected,
    log_alone,
    prior_of,
    sharpness_ratio,
)
from tests.stages.calibration_scenes import ROOT

TOUGHNESS = "edge_toughness"


def library(folder, *cuts):
    (folder / "medlar.json").write_text(json.dumps({"cuts": list(cuts)}))
    return folder


def cut(name, value, deviation=0.0, law="edge", knife="kitchen"):
    return {"name": name, "damage_law": law, "knife": knife, "values": {TOUGHNESS: [value, deviation]}}


def test_every_material_has_a_file_whose_values_the_simulator_knows():
    for material in MATERIALS:
        assert (FOLDER / f"{material}.json").is_file(), "DVC needs it as a dependency"
        for entry in cuts_of(material):
            assert entry["name"] and entry["source"] and entry["damage_law"]
            assert set(entry["values"]) <= set(ANY_MATERIAL)
            assert all(value > 0.0 and deviation > 0.0 for value, deviation in entry["values"].values())


def test_without_cuts_any_fruit_is_expected(tmp_path):
    found = expected((TOUGHNESS,), "medlar", "edge", folder=tmp_path)[TOUGHNESS]
    median, spread = ANY_MATERIAL[TOUGHNESS]
    assert found.median == pytest.approx(median)
    assert found.spread == pytest.approx(np.sqrt(spread**2 + FRUIT_SPREAD**2 + _KNIFE_SPREAD**2))
    assert found.cuts == 0


def test_cuts_of_the_material_narrow_what_is_expected(tmp_path):
    """Normal means in logarithms, by hand: 4 cuts at 800, and one of another law that does not count."""
    cuts = [cut(str(i), 800.0) for i in range(4)]
    folder = library(tmp_path, *cuts, cut("x", 10.0, law="force"))
    found = expected((TOUGHNESS,), "medlar", "edge", knife="kitchen", folder=folder)[TOUGHNESS]
    # Material and knife are the same in all of them, so they count as one number.
    before, many = 1.0 / (0.8**2 + _KNIFE_SPREAD**2), 4.0 / FRUIT_SPREAD**2
    mean = (np.log(400.0) * before + np.log(800.0) * many) / (before + many)
    assert found.median == pytest.approx(np.exp(mean))
    assert found.spread == pytest.approx(np.hypot(FRUIT_SPREAD, (before + many) ** -0.5))
    assert found.cuts == 4
    assert expected((TOUGHNESS,), "medlar", "edge", leave_out=["0"], folder=folder)[TOUGHNESS].cuts == 3


def test_levels_of_fruit_and_knife_are_those_of_drawn_libraries(tmp_path):
    """By brute force: material, knives and fruits are drawn; the prior of the next one has their mean and spread."""
    random = np.random.default_rng(3)
    errors, factors = [], []
    for _ in range(300):
        sharpness = dict(zip("abc", _KNIFE_SPREAD * random.standard_normal(3), strict=True))
        material = np.log(400.0) + ANY_MATERIAL[TOUGHNESS][1] * random.standard_normal()
        fruits = material + FRUIT_SPREAD * random.standard_normal(5)
        seen = [(knife, fruits[i] + sharpness[knife]) for i, knife in enumerate("aabb")]
        cuts = [cut(str(i), float(np.exp(x)), 1e-3, knife=knife) for i, (knife, x) in enumerate(seen)]
        folder = library(tmp_path, *cuts)
        for knife in "ac":
            found = expected((TOUGHNESS,), "medlar", "edge", knife=knife, folder=folder)[TOUGHNESS]
            errors.append((fruits[4] + sharpness[knife] - np.log(found.median)) / found.spread)
        ratio, spread = sharpness_ratio("a", "b", "edge", folder=folder)
        factors.append((sharpness["b"] - sharpness["a"] - np.log(ratio)) / spread)
    for standardised in (errors, factors):  # means of 600 and 300 standard numbers
        assert abs(np.mean(standardised)) < 4.0 / np.sqrt(300)
        assert np.std(standardised) == pytest.approx(1.0, abs=0.12)
    assert sharpness_ratio("a", "a", "edge", folder=folder) == (1.0, 0.0)
    assert sharpness_ratio("x", "y", "edge", folder=folder) == (
        1.0,
        pytest.approx(np.sqrt(2.0) * _KNIFE_SPREAD),
    )


def test_a_log_is_not_expected_to_be_like_itself(tmp_path):
    """Under whatever name it was added: shipped entries know their logs by digest."""
    folder = library(tmp_path, cut("shipped", 800.0) | {"logs": ["abc", "def"]}, cut("other", 900.0))
    found = expected((TOUGHNESS,), "medlar", "edge", leave_out=["mine", "def"], folder=folder)[TOUGHNESS]
    assert found == expected((TOUGHNESS,), "medlar", "edge", leave_out=["shipped"], folder=folder)[TOUGHNESS]
    assert found.cuts == 1


def test_a_cut_that_is_hardly_known_counts_little(tmp_path):
    known, vague = (
        expected((TOUGHNESS,), "medlar", "edge", folder=library(tmp_path, cut("a", 800.0, deviation)))
        for deviation in (0.1, 2.0)
    )
    assert known[TOUGHNESS].median > 1.2 * vague[TOUGHNESS].median > 400.0


def test_what_the_log_alone_says_gives_the_posterior_back(tmp_path):
    """Prior and log together are the posterior: what is taken apart fits together again."""
    before = expected((TOUGHNESS,), "medlar", "edge", folder=tmp_path)[TOUGHNESS]
    value, deviation = log_alone(before, 700.0, 0.4)
    precision = 1.0 / before.spread**2 + 1.0 / deviation**2
    mean = (np.log(before.median) / before.spread**2 + np.log(value) / deviation**2) / precision
    assert np.exp(mean) == pytest.approx(700.0)
    assert precision**-0.5 == pytest.approx(0.4 * before.spread)
    assert log_alone(before, 700.0, 0.99) is None


@pytest.fixture
def project(tmp_path):
    """A project with one scan of which only what the library reads is there."""
    (tmp_path / IN_PROJECT).mkdir(parents=True)
    (tmp_path / IN_PROJECT / "apple.json").write_text('{"cuts": []}')
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    scan = tmp_path / "data" / "scans" / "gala"
    (scan / "calibrate").mkdir(parents=True)
    text = "id: gala\nscan: gala.ply\nlog: log.json\nforce_log: log.json\nair_runs: gala.ply\ncut_surface: gala.ply\n"
    (scan / "scan.yaml").write_text(text + "material: apple\n")
    unknowns = MaterialUnknowns(expected((TOUGHNESS,), "medlar", "edge"), {}, 1)
    posterior = Posterior(unknowns, np.array([0.5, 0.1, 0.0]), np.diag([0.1, 0.9, 0.5]))
    write_table(scan, "calibrate/posterior", posterior_table(posterior))
    write_json(scan, "calibrate/metrics", {"nmae": 0.04})
    write_table(scan, "ingest/force", empty_table(), notes={LOGS_NOTE: "abc"})
    write_table(scan, "ingest/further", empty_table("ingest/further"), notes={LOGS_NOTE: "def ghi"})
    return Project(tmp_path)


def test_adding_a_scan_twice_keeps_one_entry(project):
    first = add_cut(project, "gala")
    assert add_cut(project, "gala")["cuts"] == 1
    entries = json.loads((project.root / IN_PROJECT / "apple.json").read_text())["cuts"]
    assert [entry["name"] for entry in entries] == ["gala"]
    assert entries[0] == first["entry"]
    assert set(entries[0]["values"]) == {TOUGHNESS}
    assert entries[0]["logs"] == ["abc", "def", "ghi"]


def test_a_log_counts_once_whatever_its_name(project):
    """Also under another material, as a shipped entry knows its logs by digest; removing it makes room."""
    other = cut("shipped", 500.0) | {"logs": ["def"]}
    (project.root / IN_PROJECT / "potato.json").write_text(json.dumps({"cuts": [other]}))
    with pytest.raises(InputError, match="in the library already, as shipped"):
        add_cut(project, "gala")
    assert remove_cut(project, "shipped")["cuts"] == 0
    add_cut(project, "gala")
    assert [(material, entry["name"]) for material, entry in library_cuts(project)] == [("apple", "gala")]
    with pytest.raises(InputError, match=r"'shipped' is not in the library\. Its entries: gala"):
        remove_cut(project, "shipped")


def test_an_entry_has_only_what_the_log_informed_and_within_range():
    """Friction far outside its range, and a parameter that the prior decides, are left out."""
    prior = expected((TOUGHNESS, "edge_rise", "sdf_mu"), "medlar", "edge")
    unknowns = MaterialUnknowns(prior, {}, 1)
    mean = np.array([0.5, 1.0, 4.0, 0.0, 0.0])
    posterior = Posterior(unknowns, mean, np.diag([0.1, 0.9, 0.4, 1.0, 1.0]))
    assert set(what_the_log_says(posterior_table(posterior))) == {TOUGHNESS}


def test_what_is_no_material_is_refused(project):
    scan = project.scan_dir("gala")
    write_json(scan, "calibrate/metrics", {"nmae": 0.3})
    with pytest.raises(InputError, match=r"the fit error is 30\.0 %"):
        add_cut(project, "gala")
    write_json(scan, "calibrate/metrics", {"nmae": 0.03})
    write_table(scan, "calibrate/posterior", posterior_table(None))
    with pytest.raises(InputError, match="calibrated per spring"):
        add_cut(project, "gala")
    (scan / "calibrate" / "metrics.json").unlink()
    with pytest.raises(InputError, match="has no calibrated cut"):
        add_cut(project, "gala")
    with pytest.raises(InputError, match="fuji"):
        add_cut(project, "fuji")
    assert json.loads((project.root / IN_PROJECT / "apple.json").read_text())["cuts"] == []


def test_an_empty_posterior_has_no_entries():
    assert what_the_log_says(pl.DataFrame(posterior_table(None))) == {}


def test_spread_of_a_cut_is_learnt_from_pairs_and_covers():
    """Without pairs it is the prior's; with many it is the truth; a 90 % interval covers the next factor."""
    assert cut_spread([]) == pytest.approx(0.1 * 2.132 / NINETY, rel=1e-3)
    random = np.random.default_rng(5)
    truth, covered = 0.18, []
    for _ in range(4000):
        cuts = truth * random.standard_normal(12)
        factors = np.exp(np.diff(cuts.reshape(-1, 2), axis=1).ravel())
        covered.append(abs(truth * random.standard_normal()) < NINETY * cut_spread(list(factors)))
    # Six pairs and a prior at 0.1 worth four: the interval is pulled towards the prior, so a little short of 90 %.
    assert 0.80 < np.mean(covered) < 0.92


def test_every_prior_names_its_source_and_materials_prints_it():
    for name, prior in PRIORS["priors"].items():
        assert prior["source"] and prior["median"] > 0.0 and prior["spread"] > 0.0, name
    shown = CliRunner().invoke(app, ["materials", "apple", "--json"])
    content = json.loads(shown.stdout)
    assert content["priors"].keys() == PRIORS["priors"].keys()
    assert content["priors"]["edge_toughness"]["cuts"] == 2, "the two shipped apples"
    assert all(row["source"] for row in content["literature"])
    assert "Holt & Schoorl" in CliRunner().invoke(app, ["materials", "apple"]).stdout
    wrong = CliRunner().invoke(app, ["materials", "aple"])
    assert isinstance(wrong.exception, InputError) and "apple, potato, cucumber, banana" in str(
        wrong.exception
    )


def test_soft_materials_have_priors_of_their_own():
    """400 J/m2 for every fruit cannot be a banana's; what differs is stated with its source, or as assumed."""
    for material, own in PRIORS["materials"].items():
        assert material in MATERIALS and own["body"]
        assert own["priors"].keys() <= PRIORS["priors"].keys()
        for prior in own["priors"].values():
            assert prior["source"] and prior["spread"] >= 0.8
    banana, any_fruit = prior_of("banana"), prior_of(None)
    assert any_fruit == ANY_MATERIAL == prior_of("apple")
    assert banana["edge_toughness"][0] == 10.0 and banana["sdf_mu"] == any_fruit["sdf_mu"]
    assert expected(("edge_toughness",), "banana", "edge")["edge_toughness"].median == pytest.approx(10.0)
    shown = CliRunner().invoke(app, ["materials", "banana"]).stdout
    assert "assumed" in shown and "Kachru" in shown


def test_nominal_parameters_are_those_of_the_scans_material():
    params_yaml = ROOT / "params.yaml"
    banana = merge_params(params_yaml, {"material": "banana"}, overrides_from="scan.yaml")
    apple = merge_params(params_yaml, {"material": "apple"}, overrides_from="scan.yaml")
    assert banana.simulate.parameters["edge_toughness"] == banana.calibrate.start["edge_toughness"] == 10.0
    assert apple.simulate.parameters["edge_toughness"] == 400.0
    given = {"material": "banana", "cut": {"parameters": {"edge_toughness": 30.0}}}
    assert merge_params(params_yaml, given, overrides_from="x").simulate.parameters["edge_toughness"] == 30.0
