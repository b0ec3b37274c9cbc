"""The pages in a real browser without network: nothing fetched, nothing complained about, everything drawn."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.report.build import record_and_report
from pipelines.report.viewer import build_viewer
from pipelines.versions.compare import read_runs, write_compare
from tests.pipelines.report_scene import FRAMES, make_project, make_scan

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (1440, 390)
SOFTWARE_GL = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
PATIENCE = 300
"""Tenths of a second that a loaded machine may take to draw the second frame in software."""
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """A report of a good run, one of a failed run, a viewer and a comparison."""
    folder = tmp_path_factory.mktemp("pages")
    project = make_project(folder / "project")
    make_scan(project, "good", factor=0.06)
    make_scan(project, "failed", without=("optimize", "export", "replay"))
    record_and_report(project, "good", [], None)
    record_and_report(project, "failed", [], "clean: </script><script>alert(1)</script> Mend it.")
    runs = read_runs(project, ["good", "failed"], folder)
    return {
        "report": project.scan_dir("good") / "report.html",
        "failed": project.scan_dir("failed") / "report.html",
        "viewer": build_viewer(project, "good"),
        "compare": write_compare(runs, folder / "compare.html"),
    }


@pytest.fixture(scope="module")
def browser() -> Iterator:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *SOFTWARE_GL])
        yield found
        found.close()


def opened(browser, page_file: Path, width: int, scheme: str = "light"):
    """The page, and the list to which its complaints and requests are added."""
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, color_scheme=scheme)
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("request", lambda r: r.url.startswith(("file:", "data:", "blob:")) or complaints.append(r.url))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.goto(page_file.as_uri())
    return page, complaints


@pytest.mark.parametrize("name", ["report", "failed", "compare"])
def test_page_is_quiet_whole_and_fits(browser, pages, name):
    for width, scheme in zip(WIDTHS, ("light", "dark"), strict=True):
        page, complaints = opened(browser, pages[name], width, scheme)
        charts = page.locator(".chart").count()
        assert page.locator(".chart canvas").count() == charts > 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert complaints == []
        page.context.close()


def test_the_first_screen_is_short_and_a_link_opens_its_section(browser, pages):
    page, complaints = opened(browser, pages["report"], 1440)
    assert page.evaluate("document.documentElement.scrollHeight") < 6000
    folded = page.locator("#mesh details.section")
    assert folded.evaluate("d => d.open") is False
    page.locator("nav a[href='#mesh']").click()
    page.locator("#mesh details.section[open]").wait_for()
    folded.locator(".chart canvas").first.wait_for()
    assert complaints == []
    page.context.close()


OUTSIDE = """() => [...document.querySelectorAll(".drawing")].flatMap((card) => {
  const room = card.getBoundingClientRect();
  return [...card.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.left < room.left || box.right > room.right || box.bottom > room.bottom;
  }).map((text) => text.textContent);
})"""
TYPE_SIZES = """() => [...document.querySelectorAll(".drawing text")].map((text) => {
  const svg = text.closest("svg");
  return parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
})"""
SMALLEST_TYPE = 8.0
"""Pixels; smaller type can't be read on a telephone."""


def test_drawings_keep_their_texts_inside_and_readable(browser, pages):
    for width in WIDTHS:
        page, _ = opened(browser, pages["report"], width)
        assert page.locator(".drawing").count() > 3
        assert page.evaluate(OUTSIDE) == []
        assert min(page.evaluate(TYPE_SIZES)) >= SMALLEST_TYPE
        page.context.close()


def test_pictures_fit_the_dark_and_can_be_read_on_a_narrow_screen(browser, pages):
    page, _ = opened(browser, pages["report"], 390, "dark")
    picture = page.locator(".picture img").first
    assert "invert" in picture.evaluate("p => getComputedStyle(p).filter")
    assert picture.evaluate("p => p.getBoundingClientRect().width") > 600
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "it scrolls in its own frame"
    page.context.close()
    page, _ = opened(browser, pages["report"], 1440)
    assert page.locator(".picture img").first.evaluate("p => getComputedStyle(p).filter") == "none"
    page.context.close()


def test_viewer_has_round_ticks(browser, pages):
    page, _ = opened(browser, pages["viewer"], 1440)
    ticks = [float(text) for text in page.locator("#force").get_attribute("data-ticks").split()]
    step = ticks[1]
    assert float(f"{step:.1e}"[0]) in (1, 2, 5) and len(ticks) >= 3
    assert ticks == pytest.approx([i * step for i in range(len(ticks))]), "in steps of 1, 2 or 5"
    page.context.close()


def test_numbers_behind_a_plot_can_be_read_and_saved(browser, pages):
    page, complaints = opened(browser, pages["report"], 1440)
    details = page.locator("figure.plot details.numbers").first
    details.locator("summary").click()
    details.locator("table").wait_for()
    with page.expect_download() as saved:
        details.locator("a.download").click()
    text = Path(saved.value.path()).read_text()
    assert text.startswith("depth below the start [mm],vertical,optimised,")
    assert details.locator("tr").count() == text.count("\n")
    assert complaints == []
    page.context.close()


def test_viewer_plays_and_obeys_the_slider(browser, pages):
    for width in WIDTHS:
        page, complaints = opened(browser, pages["viewer"], width)
        slider = page.locator("#time")
        assert slider.get_attribute("max") == str(FRAMES - 1)
        played = 0
        while slider.input_value() == "0" and played < PATIENCE:
            page.wait_for_timeout(100)
            played += 1
        assert slider.input_value() != "0"
        slider.evaluate("s => { s.value = 0; s.dispatchEvent(new Event('input')); }")
        assert page.locator("#play").inner_text() == "Play"
        first = page.locator("#view").screenshot()
        slider.evaluate("s => { s.value = s.max; s.dispatchEvent(new Event('input')); }")
        assert page.locator("#view").screenshot() != first
        # WebGL in software warns of its slow reads; nothing else may be printed.
        assert [c for c in complaints if "GL Driver Message" not in c and "GPU stall" not in c] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.context.close()


def test_viewer_shows_the_arm_and_can_hide_it(browser, pages):
    page, complaints = opened(browser, pages["viewer"], 1440)
    page.locator("#time").evaluate("s => { s.value = 0; s.dispatchEvent(new Event('input')); }")
    page.locator("#look").select_option("arm")
    whole = page.locator("#view").screenshot()
    page.locator("#arm").uncheck()
    without = page.locator("#view").screenshot()
    assert whole != without
    page.locator("#look").select_option("fruit")
    assert page.locator("#view").screenshot() != without
    assert [c for c in complaints if "GL Driver Message" not in c and "GPU stall" not in c] == []
    page.context.close()


def test_viewer_compares_the_cuts_and_keeps_its_views(browser, pages):
    page, complaints = opened(browser, pages["viewer"], 1440)
    page.locator("#time").evaluate("s => { s.value = 2; s.dispatchEvent(new Event('input')); }")
    assert (
        page.locator("#which-label").is_visible() and "final strokes" in page.locator("#phase").inner_text()
    )
    shown = {}
    for which in ("optimised", "vertical", "both"):
        page.locator("#which").select_option(which)
        tags = [page.locator(f"#tag-{i}").is_visible() for i in (0, 1)]
        assert tags == [which == "both"] * 2
        assert ("vertical" in page.locator("#now").inner_text()) == (which != "optimised")
        shown[which] = page.locator("#view").screenshot()
    assert page.locator("#phase").is_visible()
    page.locator("#which").select_option("vertical")
    assert not page.locator("#phase").is_visible(), "the vertical cut has no final strokes"
    page.locator("#which").select_option("optimised")
    for view in ("side", "front", "top"):
        page.locator("#look").select_option(view)
        shown[view] = page.locator("#view").screenshot()
    page.mouse.move(700, 300)
    page.mouse.down()
    page.mouse.move(800, 350, steps=3)
    page.mouse.up()
    assert page.locator("#view").screenshot() != shown["top"]
    page.locator("#reset").click()
    assert page.locator("#view").screenshot() == shown["top"]
    page.locator("#look").select_option("fruit")
    for box in ("#clear", "#arrow"):
        page.locator(box).uncheck()  # the made-up blade is out of sight: only complaints are looked for
    same = [(a, b) for a in shown for b in shown if a < b and shown[a] == shown[b]]
    assert same == [], "every choice shows something else"
    assert [c for c in complaints if "GL Driver Message" not in c and "GPU stall" not in c] == []
    page.context.close()
