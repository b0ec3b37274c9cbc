"""Where everything comes from, and how to make it again."""

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
    """Inputs, parameters, versions, hashes, and the command that reproduces the run."""
    blocks: list[Block] = [
        Code(command(data), "The same run again, in a clone at the same revision"),
        _versions(data),
        _inputs(data),
        _params(data),
        *_stages(data),
    ]
    return Section("provenance", "Where it comes from", blocks)


def command(data: ScanData) -> str:
    """`scan2cut run` with this scan's files and overrides."""
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
        ("code, git revision", _revision(data)),
        ("Python", platform.python_version()),
        ("machine", platform.platform()),
    ]
    for name in _PACKAGES:
        try:
            rows.append((name, version(name)))
        except PackageNotFoundError:
            rows.append((name, "not installed"))
    return Table(("part", "version"), rows, "Versions on the machine that made this page", folded=True)


def _revision(data: ScanData) -> str:
    command = ["git", "-C", str(data.project.root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "not known"
    return result.stdout.strip() or "not known"


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
        own = data.scan_yaml.get(section) or {}
        for key, value in data.used(section).items():
            rows.append((f"{section}.{key}", str(value), "this scan" if key in own else "params.yaml"))
    return Table(("parameter", "value", "from"), rows, "All parameters that the stages ran with", folded=True)


def _stages(data: ScanData) -> list[Block]:
    if not data.lock:
        return [Note("dvc.lock is not there: no stage was recorded.")]
    rows = [
        (name, kind, str(item.get("path", "")), item.get("md5"), item.get("size"))
        for name, stage in data.lock.items()
        for kind in ("deps", "outs")
        for item in stage.get(kind, [])
    ]
    header = ("stage", "as", "path", "md5", "bytes")
    return [Table(header, rows, "Every input, code and output of every stage (dvc.lock)", folded=True)]
