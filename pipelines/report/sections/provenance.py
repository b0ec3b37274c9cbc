"""Report section on provenance: inputs, parameters, versions, command to reproduce the run."""

import platform
import shlex
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pipelines.report.page import Block, Code, Note, Section, Table
from pipelines.report.scan_data import ScanData
from stages.runtime.params import SECTIONS

_PACKAGES = (
    "scan2cut",
    "warp-lang",
    "numpy",
    "scipy",
    "torch",
    "pytetwild",
    "open3d",
    "pot",
    "polars",
    "dvc",
    "prefect",
)
_MATERIAL = "material"


def provenance(data: ScanData) -> Section:
    """Build the section on inputs, parameters, versions and hashes, with the command to reproduce the run."""
    blocks: list[Block] = [
        Code(command(data), "Reproduce this run in a clone at the same revision"),
        _versions(data),
        _inputs(data),
        _params(data),
        *_stages(data),
    ]
    return Section("provenance", "Provenance", blocks)


def command(data: ScanData) -> str:
    """Return the `scan2cut run` command with this scan's files and overrides."""
    content, folder = data.scan_yaml, f"data/scans/{data.scan_id}"
    words = ["scan2cut", "run", f"{folder}/{content.get('scan', '')}", "--id", data.scan_id]
    if content.get("log"):
        words += ["--log", f"{folder}/{content['log']}"]
    if content.get(_MATERIAL):
        words += ["--material", str(content[_MATERIAL])]
    for section in SECTIONS:
        for key, value in (content.get(section) or {}).items():
            words += ["--set", f"{section}.{key}={_yaml(value)}"]
    return shlex.join(words)


def _yaml(value: Any) -> str:
    import yaml

    return (
        yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
    )


def _versions(data: ScanData) -> Table:
    rows = [
        ("git revision", _revision(data)),
        ("Python", platform.python_version()),
        ("machine", platform.platform()),
    ]
    for name in _PACKAGES:
        try:
            rows.append((name, version(name)))
        except PackageNotFoundError:
            rows.append((name, "not installed"))
    return Table(("component", "version"), rows, "Versions on the machine that built this page", folded=True)


def _revision(data: ScanData) -> str:
    command = ["git", "-C", str(data.project.root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return result.stdout.strip() or "unknown"


def _inputs(data: ScanData) -> Table:
    raw = {
        data.scan_yaml.get(key)
        for key in ("scan", "log", "cut_surface", "force_log", "air_runs", "further_logs")
    } - {None}
    rows = {}
    for stage in data.lock.values():
        for dep in stage.get("deps", []):
            path = str(dep.get("path", ""))
            if path.rpartition("/")[2] in raw:
                rows[path] = (path, dep.get("md5"), dep.get("size"))
    return Table(("raw file", "md5", "bytes"), list(rows.values()), "Inputs")


def _params(data: ScanData) -> Table:
    rows = []
    for section in SECTIONS:
        overrides = data.scan_yaml.get(section) or {}
        for key, value in data.used(section).items():
            rows.append((f"{section}.{key}", str(value), "this scan" if key in overrides else "params.yaml"))
    return Table(("parameter", "value", "source"), rows, "All parameters of the run", folded=True)


def _stages(data: ScanData) -> list[Block]:
    if not data.lock:
        return [Note("No dvc.lock: no stage has been recorded.")]
    rows = [
        (name, kind, str(item.get("path", "")), item.get("md5"), item.get("size"))
        for name, stage in data.lock.items()
        for kind in ("deps", "outs")
        for item in stage.get(kind, [])
    ]
    header = ("stage", "role", "path", "md5", "bytes")
    return [Table(header, rows, "Inputs, code and outputs of every stage (dvc.lock)", folded=True)]
