"""report.html: complete, tolerant of what is missing or broken, and safe with hostile texts."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.dvc.pipeline_file import read_template
from pipelines.dvc.stage import Outcome, StageReport
from pipelines.project import Project
from pipelines.report.build import SECTIONS, _report_html, build_report, keep_report, record_and_report
from pipelines.report.drawings import knife_path, spring_map, standalone
from pipelines.report.page import Plot, Section, Table, figure, label, labelled, number, percent, render_page
from pipelines.report.scan_data import ScanData, _read_run_record
from pipelines.report.sections.decision import tightest
from pipelines.report.sections.force import force
from pipelines.report.sections.provenance import command
from pipelines.report.sections.robot import _groups as certificate_groups
from pipelines.report.sections.robot import joints
from pipelines.report.sections.second_cut import path_drawing
from pipelines.report.tables import at_bounds, certainty
from stages.runtime.artifacts import write_json, write_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from tests.pipelines.report_scene import METRICS, ROWS, make_project, make_scan

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


@pytest.fixture
def project(tmp_path) -> Project:
    return make_project(tmp_path / "project")


class _Outside(HTMLParser):
    """Collects what a browser would fetch, and event handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            fetched = name in ("src", "href", "srcset", "data", "action") and not (value or "").startswith(
                ("data:", "#")
            )
            if fetched or name.startswith("on"):
                self.found.append(f"{tag} {name}={value}")


def fetched_by(html: str) -> list[str]:
    parser = _Outside()
    parser.feed(html)
    return parser.found


def test_whole_report(project):
    make_scan(project, "apple")
    html = build_report(project, "apple").read_text()
    assert html.count("<section") == len(SECTIONS) + 1 - len(WITHOUT_LOGS)
    assert html.count('<details class="section">') == html.count("<section") - 1, (
        "all but the decision is folded"
    )
    assert "can&#39;t be shown" not in html
    assert "Unreadable" not in html
    assert fetched_by(html) == []
    for text in (
        "20.0 %",
        "Certified: all 1 checks passed.",
        "export/cut/certified",
        "friction coefficient of the knife [-]",
        "impulse of the knife [N·s]",
    ):
        assert text in html


def test_sections_come_in_the_order_in_which_people_ask(project):
    make_scan(project, "apple")
    html = _report_html(ScanData(project, "apple"))
    anchors = re.findall(r'<section id="(\w+)"', html)
    assert anchors == ["decision", "optimum", "certificate", "joints", "limits", "path", "constraints", "force",
                       "history", "transport", "cleaning", "mesh", "springs", "run", "provenance"]  # fmt: skip


@pytest.mark.parametrize("stage", sorted(METRICS))
def test_a_missing_stage_is_said_and_spoils_nothing_else(project, stage):
    make_scan(project, "apple", without=(stage,))
    html = _report_html(ScanData(project, "apple"))
    assert f"Stages without results: {stage}." in html
    assert "can&#39;t be shown" not in html


def test_nothing_has_run(project):
    make_scan(project, "apple", without=tuple(METRICS))
    html = _report_html(ScanData(project, "apple"))
    assert html.count("has not run") >= len(SECTIONS) - 5
    assert "can&#39;t be shown" not in html


def test_broken_artifacts_are_named_not_fatal(project):
    folder = make_scan(project, "apple")
    (folder / ARTIFACTS["calibrate/profile"].path).write_bytes(b"not parquet")
    (folder / ARTIFACTS["optimize/metrics"].path).write_text("{broken")
    (folder / "export/cut/certified/cut.json").write_text('{"limits": {}}')
    html = _report_html(ScanData(project, "apple"))
    assert "profile.parquet" in html
    assert "can&#39;t be read as JSON" in html
    assert html.count("This section can&#39;t be shown") == 1
    assert html.count("<section") == len(SECTIONS) + 1 - len(WITHOUT_LOGS)


WITHOUT_LOGS = ("predictions", "executed")
"""Sections that are left out where there is nothing of theirs."""
CHECK = {"number": 2, "unit": "m", "margin": 0.0, "passed": True, "note": "joint 2", "remedy": "Go slower"}


def test_report_opens_with_the_decision(project):
    folder = make_scan(project, "apple")
    document = json.loads((folder / "export/cut/certified/cut.json").read_text())
    checks = [
        CHECK | {"name": f"check {i}", "value": 0.1 * i, "limit": 1.0, "rule": "<="} for i in range(1, 9)
    ]
    checks.append(CHECK | {"name": "low", "value": 1.05, "limit": 1.0, "rule": ">="})
    document["certificate"]["checks"] += checks
    (folder / "export/cut/certified/cut.json").write_text(json.dumps(document))
    html = _report_html(ScanData(project, "apple"))
    go = html.index("GO. Certified: all 1 checks passed. Simulated only, never executed on a real arm")
    assert go < html.index("What is not known") < html.index('<section id="optimum"') and "NO-GO" not in html
    assert "cut through (simulated)" in html and "Margin to the limit" in html
    assert [check["name"] for check, _ in tightest(checks)] == [
        "low",
        "check 8",
        "check 7",
        "check 6",
        "check 5",
    ]


def test_groups_of_the_certificate_fold_and_begin_with_the_tightest():
    """What failed comes first and opens its group."""
    loose, tight = (
        CHECK | {"name": name, "value": value, "limit": 1.0, "rule": "<="}
        for name, value in (("loose", 0.2), ("tight", 0.9))
    )
    wrong = loose | {"number": 4, "name": "wrong", "value": 1.2, "passed": False}
    two, four = certificate_groups([loose, tight, wrong, tight | {"number": 4}])
    assert [row[1] for row in two.rows] == ["tight", "loose"] and two.folded
    assert [row[1] for row in four.rows] == ["wrong", "tight"] and not four.folded


def test_refused_motion_is_a_no_go_without_files(project):
    folder = make_scan(project, "apple")
    document = json.loads((folder / "export/cut/certified/cut.json").read_text())
    failed = CHECK | {"name": "hovers", "value": 0.03, "limit": 0.002, "rule": "<=", "passed": False}
    document["certificate"]["checks"].append(failed)
    (folder / "export/cut/certified/cut.json").write_text(json.dumps(document))
    refused = METRICS["export"] | {"certified": False, "outcome": "refused", "verdict": "Refused: it hovers."}
    write_json(folder, "export/metrics", refused)
    html = _report_html(ScanData(project, "apple"))
    assert "NO-GO. Refused: it hovers. No files were written for the robot." in html
    assert ">files for the robot<" not in html and "export/cut/certified" not in html
    assert "1 FAILED" in html and "joint 2; Go slower" in html


def test_a_scan_of_two_fruits_is_among_the_first_things_said(project):
    folder = make_scan(project, "apple")
    write_json(folder, "clean/metrics", METRICS["clean"] | {"warning": "The body has a neck."})
    html = _report_html(ScanData(project, "apple"))
    assert (
        html.index("GO. Certified")
        < html.index("Scan: The body has a neck.")
        < html.index("before and after cleaning</h2>")
    )


def test_unknown_scan(project):
    with pytest.raises(InputError, match="no scan 'pear'"):
        build_report(project, "pear")


def reports(project, count):
    names = [entry.name for entry in read_template(project.template)][:count]
    return [StageReport(name, Outcome.COMPLETED, 1.5, ()) for name in names]


def test_failed_run_says_where_and_why(project):
    folder = make_scan(project, "apple", without=("optimize", "export", "replay"))
    stages = [entry.name for entry in read_template(project.template)]
    done = reports(project, stages.index("optimize"))
    record_and_report(project, "apple", done, "optimize: the knife jammed. Lower dt_s.")
    html = (folder / "report.html").read_text()
    assert "The run failed in stage optimize. optimize: the knife jammed. Lower dt_s." in html
    record = _read_run_record(folder)
    assert (record.ok, record.failed_stage) == (False, "optimize")
    assert not (folder / "viewer.html").exists()


def test_run_record_keeps_the_time_of_the_last_computation(project):
    folder = make_scan(project, "apple")
    record_and_report(project, "apple", reports(project, 13), None)
    again = [StageReport("clean", Outcome.UNCHANGED, 0.1, ())]
    record_and_report(project, "apple", again, None)
    record = _read_run_record(folder)
    assert record.stages == {"clean": {"outcome": "Unchanged", "seconds": 0.1}}
    assert record.computed_s["clean"] == 1.5
    assert (folder / "viewer.html").is_file()


def test_a_page_that_fails_only_warns(project):
    said = []
    record_and_report(project, "never registered", [], None, warn=said.append)
    assert len(said) == 1


def test_a_target_that_failed_is_not_mistaken_for_a_later_stage(project):
    folder = make_scan(project, "apple")
    done = [r for r in reports(project, 6) if r.name != "calibrate"]
    record_and_report(project, "apple", done, "calibrate: no.", target="calibrate")
    assert _read_run_record(folder).failed_stage == "calibrate"


def test_hostile_texts_stay_texts(project):
    folder = make_scan(project, "apple", raw=HOSTILE.replace("/", "_"))
    record_and_report(project, "apple", [], f"clean: {HOSTILE}")
    html = (folder / "report.html").read_text()
    assert set(fetched_by(html)) <= {"a href=viewer.html"}, "a file beside it"
    assert "alert(1)</script>" not in html
    assert "<img src=x" not in html
    # One script element for each plot's data and one of our own.
    assert html.count("</script>") == html.count("<script") == html.count('class="chart"') + 1


def test_hostile_names_of_curves_and_columns():
    plot = Plot(HOSTILE, HOSTILE, HOSTILE, [0.0, 1.0], [])
    page = render_page(
        HOSTILE, HOSTILE, [Section("a", HOSTILE, [plot, Table([HOSTILE], [[HOSTILE]], HOSTILE)])]
    )
    assert fetched_by(page) == []
    assert page.count("</script>") == 2
    drawn = spring_map([[0.0, 0.0], [1.0, 1.0]], [1.0, 1.0], [1.0, 2.0], title=HOSTILE, unit=HOSTILE)
    assert fetched_by(drawn) == []
    assert "<script" not in drawn


def test_error_by_depth_is_a_mean_of_the_residuals(project):
    make_scan(project, "apple")
    data = ScanData(project, "apple")
    profile = data.table("calibrate/profile")
    plot = next(b for b in force(data).blocks if isinstance(b, Plot) and b.title == "Error by depth")
    error = plot.curves[0].values
    touched = profile.filter(profile["contact"])
    # The made-up heights rise by 1/12 m per row in contact, so every row has a slice of its own.
    assert sorted(error) == pytest.approx(sorted(touched["residual_n"].abs()), rel=1e-12)


def test_joints_are_shares_of_their_limits(project):
    make_scan(project, "apple")
    data = ScanData(project, "apple")
    plots = [b for b in joints(data).blocks if isinstance(b, Plot)]
    assert len(plots) == 4
    speed = plots[1].curves[0].values
    limit = data.cut["limits"]["velocity_rad_s"][0]
    assert speed[-1] == pytest.approx(0.01 * (ROWS - 1) / limit)
    assert all(abs(v) < 1.0 for v in plots[3].curves[1].values)


def test_blade_bounds_leave_the_fruit_under_the_blade(project):
    make_scan(project, "apple", factor=0.05)
    (drawing,) = path_drawing(ScanData(project, "apple"))
    assert drawing.svg.count('class="limit"') == 2


def test_knife_path_fills_both_orientations_alike():
    face = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    track, times = [[0.0, 1.0], [0.0, 0.0]], [0.0, 1.0]
    ahead, behind = (knife_path([f], track, times, bounds=None, blade_m=None) for f in (face, face[::-1]))
    area = [_signed_area(re.search(r'class="fruit" d="M([^Z]*)Z', svg)[1]) for svg in (ahead, behind)]
    assert area[0] == pytest.approx(area[1])


def test_standalone_drawing_is_well_formed_xml():
    svg = knife_path(
        [[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]], [[0.0, 1.0], [0.0, 0.0]], [0.0, 1.0], bounds=(0, 1), blade_m=2
    )
    root = ElementTree.fromstring(standalone(svg))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def _signed_area(points: str) -> float:
    (ax, ay), (bx, by), (cx, cy) = (map(float, p.split()) for p in points.split("L"))
    return 0.5 * ((bx - ax) * (cy - ay) - (cx - ax) * (by - ay))


def test_command_reproduces_the_overrides(project):
    make_scan(project, "apple")
    assert command(ScanData(project, "apple")).endswith("--material apple --set replay.frames=4")


def test_words():
    assert label("mean_force_n") == "mean force [N]"
    assert label("acceleration_along_residual_m_s2") == "acceleration along residual [m/s²]"
    assert label("touched_ns") == "touched [N·s]"
    assert label("tets") == "tets"
    assert number(0.123456) == "0.1235"
    assert number(True) == "yes"
    assert number(None) == "–"
    assert number({"a": 1.0}) == "a: 1"
    assert percent(0.1942) == "19.4 %"
    assert percent(None) == "–"


def test_lengths_are_shown_in_millimetres():
    assert labelled("board_margin_m", 0.0015) == ("board margin [mm]", 1.5)
    assert labelled("volume_m3", 1.63e-4) == ("volume [cm³]", pytest.approx(163.0))
    assert labelled("edges_m", [0.001, 0.002]) == ("edges [mm]", [1.0, 2.0])
    assert labelled("alignment_m", None) == ("alignment [mm]", None)
    assert labelled("tets", 5) == ("tets", 5)


def scalars(project, identifiable):
    rows = [("sdf_radius", 6.0e-4, "m", 1e-4, 1.2e-3, False, 3e-4, identifiable[0]),
            ("surface_sdf_mu", 1.0, "-", 0.45, 1.0, True, 0.2, identifiable[1])]  # fmt: skip
    names = [column.name for column in ARTIFACTS["calibrate/scalars"].columns]
    write_table(
        project.scan_dir("apple"), "calibrate/scalars", pl.DataFrame(rows, schema=names, orient="row")
    )
    return ScanData(project, "apple")


def test_what_the_log_determines_is_said_in_words_with_units(project):
    make_scan(project, "apple")
    data = scalars(project, (False, False))
    none = "The log determines none of the 2 fitted parameters to within 10 %:"
    assert certainty(data).startswith(none)
    assert (
        at_bounds(data)
        == "Parameters at a bound of their range: friction coefficient of the knife, at the skin (1)."
    )
    html = _report_html(data)
    assert html.count(none) == 2, "in the summary and where the parameters are"
    assert "<td>contact rounding of the knife</td>" in html
    for text in ("0.6", "± 0.6", "mm", "0.1 to 1.2", "0.45 to 1, at a bound"):
        assert f'<td class="short">{text}</td>' in html
    one = certainty(scalars(project, (True, False)))
    assert (
        one
        == "The log determines 1 of the 2 fitted parameters to within 10 %: contact rounding of the knife."
    )
    assert "all 2 fitted" in certainty(scalars(project, (True, True)))


def test_what_the_log_added_to_the_material_is_said_in_words(project):
    folder = make_scan(project, "apple")
    sizes = {
        "edge_toughness": "known from this log",
        "sdf_mu": "as expected",
        "skin_toughness": "as expected",
    }
    rows = [
        {"name": name, "unit": "-", "cuts": 2, "learned": learned}
        | dict.fromkeys(
            ("expected", "expected_low", "expected_high", "value", "low", "high", "deviation"), 1.0
        )
        for name, learned in sizes.items()
    ]
    columns = [column.name for column in ARTIFACTS["calibrate/posterior"].columns]
    write_table(folder, "calibrate/posterior", pl.DataFrame(rows).select(columns))
    said = certainty(ScanData(project, "apple"))
    assert said.startswith("Known from this log: ")
    assert "; as expected: friction coefficient of the knife, " in said


def test_the_certificate_counts_what_was_not_run(project):
    folder = make_scan(project, "apple")
    place = folder / "export/cut/certified/cut.json"
    document = json.loads(place.read_text())
    skipped = CHECK | {"name": "replay", "passed": None, "value": None, "limit": None, "rule": "="}
    document["certificate"]["checks"].append(skipped)
    place.write_text(json.dumps(document))
    write_json(folder, "export/metrics", METRICS["export"] | {"checks": 2})
    assert "1 checks passed, 0 failed, 1 not run" in _report_html(ScanData(project, "apple"))


def test_error_by_depth_is_not_flattened_by_the_force(project):
    make_scan(project, "apple")
    plots = [b for b in force(ScanData(project, "apple")).blocks if isinstance(b, Plot)]
    (depth,) = [plot for plot in plots if plot.title == "Error by depth"]
    assert [curve.label for curve in depth.curves] == [
        "mean absolute error",
        "bias: simulated minus measured",
    ]
    assert "mean measured force" in depth.caption


def test_report_of_a_scan_that_is_not_kept(project):
    make_scan(project, "apple", without=tuple(METRICS))
    page = record_and_report(project, "apple", [], "clean: 3 faces are too few. Scan again.")
    kept = keep_report(project, "apple", page)
    assert kept == project.root / "data" / "refused" / "apple.html"
    assert "The run failed in stage clean. clean: 3 faces are too few." in kept.read_text()
    assert keep_report(project, "apple", None) is None


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("volume_m3", 0.0001629, "volume 163 cm³"),
        ("reduction", 0.6284, "mean force 63 % lower"),
        ("peak_reduction", -0.02, "peak 2 % higher"),
        ("nmae", 0.018, "mean error 1.8 %"),
        ("nmae", None, "–"),
        ("cut_fraction", 0.991, "cut 99.1 %"),
        ("peak_force_n", 22.04, "peak force 22 N"),
        ("tets", 2310, "2,310 tets"),
        ("cost", 0.01234, "cost 0.012"),
        ("outcome", "certified", "certified"),
        ("seeded", True, "seeded: yes"),
    ],
)
def test_a_key_figure_has_a_unit_people_use(key, value, text):
    assert figure(key, value) == text


def test_without_a_force_log_the_report_does_not_say_go_plainly(project):
    make_scan(project, "apple")
    path = project.scan_dir("apple") / "export" / "metrics.json"
    content = json.loads(path.read_text())
    verdict = "Geometry certified, force uncalibrated: all 1 checks passed."
    path.write_text(json.dumps(content | {"force_calibrated": False, "verdict": verdict}))
    html = _report_html(ScanData(project, "apple"))
    assert f"GO only after a probe cut or explicit confirmation. {verdict}" in html and "GO. " not in html


def test_list_shows_every_scan_without_dvc(project, monkeypatch):
    make_scan(project, "apple")
    make_scan(project, "pear", without=tuple(METRICS))
    monkeypatch.chdir(project.root)
    answer = CliRunner().invoke(app, ["list", "--json"])
    assert answer.exit_code == 0, answer.output
    first, second = json.loads(answer.stdout)
    assert first["scan"] == "apple" and first["outcome"] == "certified"
    assert second["scan"] == "pear" and second["outcome"] is None
    assert "pear" in CliRunner().invoke(app, ["list"]).stdout
