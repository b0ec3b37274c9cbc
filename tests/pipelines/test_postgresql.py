"""PostgreSQL behind Prefect instead of SQLite: eight scans at once, all of them in its tables."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from tests.pipelines.postgresql import postgresql, why_not
from tests.pipelines.tiny_project import environment, runs, write_scan

SCANS = 8
VARIABLE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"


def flow_runs(address):
    """(name, state) of every run in the database."""
    import asyncpg

    async def ask():
        connection = await asyncpg.connect(address.replace("+asyncpg", ""))
        try:
            return await connection.fetch("SELECT name, state_type::text AS state FROM flow_run")
        finally:
            await connection.close()

    return sorted((row["name"], row["state"]) for row in asyncio.run(ask()))


@pytest.mark.slow
@pytest.mark.endurance
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_eight_scans_at_once(project, tmp_path):
    scans = [write_scan(tmp_path, f"apple-{i}.ply", f"good slow-clean {i}") for i in range(SCANS)]
    with postgresql() as address:
        batch = subprocess.run(
            [
                *(sys.executable, "-m", "pipelines.cli.main", "batch", *map(str, scans)),
                *("--target", "clean", "--workers", str(SCANS), "--memory-gb", "0.1", "--json"),
            ],
            cwd=project.root,
            env=environment(project) | {"PREFECT_API_URL": "", VARIABLE: address},
            capture_output=True,
            text=True,
            check=False,
        )
        assert batch.returncode == 0, batch.stderr[-3000:]
        results = json.loads(batch.stdout)
        assert [result["ok"] for result in results] == [True] * SCANS
        assert flow_runs(address) == [(f"apple-{i}", "COMPLETED") for i in range(SCANS)]
    assert sorted(runs(project)) == [f"apple-{i} clean" for i in range(SCANS)]
    assert not (project.prefect_home / "prefect.db").exists(), "SQLite was not used"


@pytest.mark.slow
@pytest.mark.endurance
def test_a_database_that_does_not_answer_is_a_sentence(project, tmp_path):
    scan = write_scan(tmp_path, "apple.ply", "good")
    address = "postgresql+asyncpg://lab:horse-battery-staple@127.0.0.1:1/postgres"
    run = subprocess.run(
        [sys.executable, "-m", "pipelines.cli.main", "run", str(scan), "--target", "clean"],
        cwd=project.root,
        env=environment(project) | {"PREFECT_API_URL": "", VARIABLE: address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1 and "Prefect's server did not start" in run.stderr, run.stderr
    assert "Traceback" not in run.stderr and "horse-battery" not in run.stderr
    assert os.environ.get(VARIABLE) is None
