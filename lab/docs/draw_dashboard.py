"""Takes the screenshots of the Prefect dashboard in docs/pictures/dashboard_*.png, in headless Chromium.

    python -m lab.docs.draw_dashboard URL SCAN_ID    e.g. http://127.0.0.1:4200 synthetic_apple

The newest run of that scan: its progress while optimize runs; afterwards the run, its summary, a table and a picture.
Needs a running dashboard (`make dashboard`), the package playwright and a Chromium.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = {"width": 1280, "height": 800}
SETTLE_MS = 2500
"""The pages draw their graphs after the network has gone quiet."""


def newest_run(url: str, scan_id: str) -> dict[str, Any]:
    """The flow run with this name that began last."""
    query = {"flow_runs": {"name": {"any_": [scan_id]}}, "sort": "EXPECTED_START_TIME_DESC"}
    found: list[dict[str, Any]] = httpx.post(f"{url}/api/flow_runs/filter", json=query).json()
    return found[0]


def artifacts_of(url: str, run_id: str) -> dict[str, str]:
    """Key → id of the run's artifacts."""
    query = {"flow_runs": {"id": {"any_": [run_id]}}}
    found = httpx.post(f"{url}/api/artifacts/filter", json=query).json()
    return {item["key"]: item["id"] for item in found}


def draw(url: str, pages: dict[str, str]) -> list[Path]:
    """Take a picture of each page: name → path on the server."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    written = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        for name, path in pages.items():
            page.goto(url + path, wait_until="networkidle", timeout=120_000)
            page.wait_for_timeout(SETTLE_MS)
            written.append(PICTURES / f"dashboard_{name}.png")
            page.screenshot(path=written[-1])
        browser.close()
    return written


def main() -> None:
    """Draw what there is to see of the run now."""
    url, scan_id = sys.argv[1], sys.argv[2]
    run = newest_run(url, scan_id)
    ids = artifacts_of(url, run["id"])
    word = scan_id.replace("_", "-")
    if run["state_type"] != "COMPLETED":
        draw(url, {"progress": f"/artifacts/artifact/{ids[f'{word}-00-summary']}"})
        return
    pages = {"run": f"/runs/flow-run/{run['id']}", "deployment": "/deployments"}
    for name, key in (("summary", "00-summary"), ("metrics", "05-calibrate"), ("preview", "11-optimize")):
        pages[name] = f"/artifacts/artifact/{ids[f'{word}-{key}']}"
    draw(url, pages)


if __name__ == "__main__":
    main()
