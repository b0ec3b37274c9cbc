"""Takes the screenshots of report.html, viewer.html and compare.html in docs/img, on a wide and a narrow screen.

    python -m lab.docs.draw_pages data/scans/synthetic_apple [compare.html]

Needs a finished run of that scan, the package playwright and a Chromium.
"""

import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright

Scheme = Literal["light", "dark"]

TARGET = Path(__file__).parents[2] / "docs" / "img"
SOFTWARE_GL = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
SHOTS: tuple[tuple[str, str, int, int, Scheme, str], ...] = (
    ("report.html", "report_1440", 1440, 1100, "light", "#summary"),
    ("report.html", "report_1440_dark", 1440, 1100, "dark", "#cleaning"),
    ("report.html", "report_390", 390, 1100, "dark", "#summary"),
    ("report.html", "report_390_light", 390, 1100, "light", "#springs"),
    ("report.html", "report_springs_1440", 1440, 1100, "light", "#springs"),
    ("report.html", "report_optimum_1440", 1440, 1100, "light", "#optimum"),
    ("report.html", "report_path_390", 390, 1100, "light", "#path"),
    ("report.html", "report_joints_1440", 1440, 1100, "dark", "#joints"),
    ("viewer.html", "viewer_1440", 1440, 900, "light", "#frame=45"),
    ("viewer.html", "viewer_390", 390, 844, "dark", "#frame=60"),
)
"""Page, name, width and height [pixel], colours, and where in the page."""


def shoot(browser: Browser, folder: Path, compared: Path | None) -> None:
    """All pictures, that of the comparison if there is one."""
    for page_name, name, width, height, scheme, place in SHOTS:
        take(browser, (folder / page_name).resolve().as_uri() + place, name, (width, height), scheme)
    if compared is not None:
        take(browser, compared.resolve().as_uri() + "#curves", "compare_1440", (1440, 900), "light")


def take(browser: Browser, address: str, name: str, size: tuple[int, int], scheme: Scheme) -> None:
    """One picture of a size [pixel]."""
    view = ViewportSize(width=size[0], height=size[1])
    page = browser.new_page(viewport=view, color_scheme=scheme, offline=True)
    page.goto(address)
    page.wait_for_timeout(1500)
    page.screenshot(path=TARGET / f"{name}.png")
    page.close()


def main() -> None:
    """Take the pictures of the pages in the scan's directory."""
    TARGET.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", *SOFTWARE_GL])
        shoot(browser, Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
        browser.close()


if __name__ == "__main__":
    main()
