"""Choosing the cut plane by eye: the page in a browser, and who may save what."""

import json
import threading
import urllib.error
import urllib.request

import numpy as np
import polars as pl
import pytest
import trimesh

from pipelines.dvc.stage import bring_up_to_date
from pipelines.report.plane_page import CutPlane, PlaneServer, check_plane, read_fruit
from pipelines.scans.register import Request, known_raw_file, register_scan
from stages.runtime.artifacts import write_table
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping
from tests.pipelines.test_dvc_stage import entry_of
from tests.pipelines.test_pages_in_browser import CHROMIUM, SOFTWARE_GL
from tests.pipelines.tiny_project import write_scan

RADIUS = 0.04


@pytest.fixture
def fruit(project, tmp_path):
    """A ball on the board; its cleaned surface was made with an offset of 5 mm."""
    settings = {"clean": {"cut_offset_m": 0.005}}
    register_scan(project, Request(write_scan(tmp_path, "apple.ply"), overrides=settings))
    bring_up_to_date(project, "apple", entry_of(project, "clean"))
    ball = trimesh.creation.icosphere(subdivisions=3, radius=RADIUS)
    points = ball.vertices + np.array([-0.005, RADIUS, 0.0])
    folder = project.scan_dir("apple")
    write_table(
        folder,
        "clean/vertices",
        pl.DataFrame({"position_m": pl.Series(points, dtype=pl.Array(pl.Float64, 3))}),
    )
    write_table(
        folder, "clean/faces", pl.DataFrame({"vertices": pl.Series(ball.faces, dtype=pl.Array(pl.Int32, 3))})
    )
    return read_fruit(project, "apple")


@pytest.fixture
def server(project, fruit):
    def save(plane):
        overrides = {"clean": {"cut_offset_m": plane.cut_offset_m, "turn_deg": plane.turn_deg}}
        register_scan(
            project, Request(known_raw_file(project, "apple"), scan_id="apple", overrides=overrides)
        )

    served = PlaneServer(fruit, save)
    thread = threading.Thread(target=served.serve)
    thread.start()
    yield served
    if served.chosen is None:
        served.stop()
    thread.join(timeout=30)
    assert not thread.is_alive()


def saved(project):
    return read_mapping(project.scan_dir("apple") / "scan.yaml")["clean"]


def post(url, content, **headers):
    request = urllib.request.Request(url + "plane", json.dumps(content).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_only_the_page_may_save(project, fruit, server):
    before = saved(project)
    good = {"cut_offset_m": 0.01, "turn_deg": 10.0}
    assert post(server.url, good)[0] == 403
    assert post(server.url, {**good, "token": "guessed"})[0] == 403
    assert post(server.url, {**good, "token": fruit.token}, Host="evil.example")[0] == 403
    code, said = post(server.url, {**good, "cut_offset_m": 0.2, "token": fruit.token})
    assert code == 400 and "misses the fruit" in said and saved(project) == before
    code, said = post(server.url, {**good, "token": fruit.token})
    assert code == 200 and "clean.cut_offset_m=0.01" in said
    assert saved(project) == {"cut_offset_m": 0.01, "turn_deg": 10.0}


@pytest.mark.parametrize(
    "content",
    [None, [], {}, {"cut_offset_m": "1", "turn_deg": 0}, {"cut_offset_m": float("nan"), "turn_deg": 0}],
)
def test_what_is_no_plane_is_rejected(fruit, content):
    with pytest.raises(InputError, match="must send two numbers"):
        check_plane(fruit, content)


def test_the_plane_turns_with_the_fruit(fruit):
    assert check_plane(fruit, {"cut_offset_m": 0.0399, "turn_deg": 180}) == CutPlane(0.0399, 180.0)
    with pytest.raises(InputError, match=r"between -4.\.. and 4.\.. mm"):
        check_plane(fruit, {"cut_offset_m": -0.041, "turn_deg": 45})


def test_a_scan_without_a_cleaned_surface_gets_a_message(project, tmp_path):
    register_scan(project, Request(write_scan(tmp_path, "pear.ply")))
    with pytest.raises(InputError, match=r"Run 'scan2cut run pear --target clean' first"):
        read_fruit(project, "pear")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_plane_is_dragged_and_saved(project, fruit, server):
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *SOFTWARE_GL])
        for width in (390, 1440):
            page = browser.new_page(viewport={"width": width, "height": 900})
            complaints = []
            page.on("pageerror", lambda error: complaints.append(str(error)))  # noqa: B023
            page.on("request", lambda r: r.url.startswith(server.url) or complaints.append(r.url))  # noqa: B023
            page.goto(server.url)
            page.locator("#pieces").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert "35.0 mm (colour) and 45.0 mm" in page.locator("#pieces").inner_text()
        page.locator("#look").select_option("side")  # the plane is seen from its edge; its rim is at the top
        page.locator("#look").select_option("corner")
        before = float(page.locator("#offset").input_value())
        box = page.locator("#view").bounding_box()
        grabbed = None
        for down in range(20, 400, 8):  # look for the rim, where the pointer becomes a hand
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + down)
            if page.locator("#view").evaluate("v => v.style.cursor") == "grab":
                grabbed = down
                break
        assert grabbed is not None
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2 + 60, box["y"] + grabbed, steps=4)
        page.mouse.up()
        assert abs(float(page.locator("#offset").input_value()) - before) > 1.0
        page.locator("#turn").evaluate("s => { s.value = 30; s.dispatchEvent(new Event('input')); }")
        page.locator("#thickness").fill("25")
        page.locator("#save").click()
        page.get_by_text("Saved: clean.cut_offset_m=").wait_for()
        assert complaints == []
        browser.close()
    assert saved(project)["cut_offset_m"] == pytest.approx(RADIUS - 0.025, abs=5e-4)
    assert saved(project)["turn_deg"] == 30.0 and server.chosen is not None
