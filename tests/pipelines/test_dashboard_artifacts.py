"""The page of running scans: what it shows, and that everything else is passed on."""

import asyncio
import json

from pipelines.project import scan_lock
from pipelines.runs.dashboard_artifacts import WithLivePage, live_html, running_scans
from pipelines.scans.register import Request, register_scan
from tests.pipelines.report_scene import PIXEL
from tests.pipelines.tiny_project import write_scan


def test_running_scans_are_shown_with_progress_and_picture(project, tmp_path):
    for name in ("apple", "pear"):
        register_scan(project, Request(write_scan(tmp_path, f"{name}.ply", name)))
    assert running_scans(project) == [] and "No scan is running" in live_html(project)
    with scan_lock(project, "pear", lambda: None, "optimize"):
        (shown,) = running_scans(project)
        assert (shown.scan, shown.stage, shown.percent, shown.picture) == ("pear", "optimize", 0, "")
        event = {"kind": "progress", "fraction": 0.41, "message": "mean <b>13 N</b>"}
        events = project.state_dir / "pear.events.jsonl"
        events.write_text(
            json.dumps(event) + "\n" + json.dumps({"kind": "picture", "path": "x"}) + '\n{"kind": "pro'
        )
        (project.scan_dir("pear") / "live.png").write_bytes(PIXEL)
        text = live_html(project)
    assert "<h2>pear: optimize</h2>" in text and "41 % mean &lt;b&gt;13 N&lt;/b&gt;" in text
    assert "data:image/png;base64," in text and "apple: " not in text


def test_other_requests_are_passed_on(project):
    async def ask(path):
        sent = []

        async def send(message):
            sent.append(message)

        async def prefect(scope, receive, send):
            await send({"status": 418})

        await WithLivePage(prefect, project)({"type": "http", "path": path}, None, send)
        return sent

    assert asyncio.run(ask("/runs")) == [{"status": 418}]
    assert asyncio.run(ask("/live"))[0]["status"] == 200
