"""Versions of the dataset in git and DVC, and the history of one scan: list, compare two, restore at a revision."""

import json
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from rich.table import Table

from pipelines.dvc.commands import CommandError, cache_dir, cached_file, run_git
from pipelines.dvc.repair import LOCK_FILE_NAME, recorded_stages
from pipelines.project import TEMPLATE, Project, known_scans
from pipelines.report.page import figure, labelled, number
from pipelines.report.scan_data import flat, main_figures, read_runs
from stages.runtime.errors import InputError
from stages.runtime.files import parse_yaml
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME


def at_revision(project: Project, scan_id: str, revision: str, scratch: Path) -> Project:
    """Return a project in `scratch` with the scan as committed at a git revision.

    Text files (scan.yaml, dvc.lock, metrics) come from git, tables and pictures from DVC's cache if still there. The
    user's files are not changed.
    """
    try:
        output = run_git(project.root, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    except CommandError as error:
        raise InputError(
            f"compare: git has no revision {revision!r}. It must be a commit, tag or branch. See 'git log'."
        ) from error
    commit = output.decode().strip()
    root = scratch / commit[:12] / scan_id
    folder = f"data/scans/{scan_id}"
    paths = (folder, PARAMS_FILE_NAME, str(TEMPLATE))
    listed = run_git(project.root, "ls-tree", "-r", "--name-only", "-z", commit, "--", *paths)
    names = [name for name in listed.decode().split("\0") if name]
    if f"{folder}/scan.yaml" not in names:
        raise InputError(
            f"compare: the scan {scan_id!r} is not in {revision}. Its scan.yaml, dvc.lock and metrics must be in git "
            "(docs/pipeline.md#artifacts). Commit them, or choose a later revision."
        )
    for name in names:
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(run_git(project.root, "show", f"{commit}:./{name}"))
    _link_cached_outputs(project, root, root / folder)
    return Project(root)


def _link_cached_outputs(project: Project, root: Path, scan_dir: Path) -> None:
    """Link the output files that are still in DVC's cache."""
    outputs = [output for stage in recorded_stages(scan_dir).values() for output in stage.get("outs", [])]
    if not outputs:
        return
    cache = cache_dir(project)
    for output in outputs:
        source, target = cached_file(cache, str(output.get("md5", ""))), root / str(output.get("path", ""))
        if source.is_file() and root in target.resolve().parents and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)


NOW = "now"
"""Name of the work tree as a version."""
_SCANS = "data/scans"
_MAX_VERSIONS = 50
_META = (SCAN_FILE_NAME, LOCK_FILE_NAME, "metrics.json", ".dvc")
"""Suffixes of the text files that describe a scan; all other files in data/scans are data."""


@dataclass(frozen=True)
class _Version:
    """One version of the dataset."""

    name: str
    commit: str
    date: str
    scans: int
    subject: str

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return asdict(self)


@dataclass(frozen=True)
class _ValueChange:
    """Change of one value of a YAML or JSON file."""

    key: str
    """Dotted key, such as clean.unit."""
    old: Any
    new: Any

    def __str__(self) -> str:
        """Return the key and both values as they are in the file."""
        return f"{self.key}: {_shown(self.old)} → {_shown(self.new)}"

    def as_figure(self) -> str:
        """Return a metric's name and both values in the unit people use."""
        name = self.key.replace(".", " ")
        label, old = labelled(name, self.old)
        _, new = labelled(name, self.new)
        return f"{label}: {number(old)} → {number(new)}"


@dataclass(frozen=True)
class _ScanChange:
    """Changes of one scan."""

    scan: str
    kind: str
    """added, removed or changed"""
    raw: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    """Stages whose outputs changed."""
    metrics: tuple[tuple[str, _ValueChange], ...] = ()
    """Stage and change of one of its metrics."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints, with keys and SI units."""
        return vars(self) | {"metrics": [f"{stage}.{change}" for stage, change in self.metrics]}


@dataclass(frozen=True)
class _Changes:
    """Changes from one version to another."""

    old: str
    new: str
    params: tuple[str, ...]
    scans: tuple[_ScanChange, ...] = field(default_factory=tuple)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return vars(self) | {"scans": [scan.as_json() for scan in self.scans]}


def list_versions(project: Project) -> list[_Version]:
    """Return the work tree, then all tags and all commits that changed the dataset, newest first."""
    tags = _lines(project, "tag", "--list", "--format=%(refname:short)%09%(*objectname)%(objectname)")
    tag_names = {line.split("\t")[1][:40]: line.split("\t")[0] for line in tags}
    log = _lines(project, "log", f"-{_MAX_VERSIONS}", "--format=%H%x09%cs%x09%s", "--", _SCANS)
    tagged = [_lines(project, "log", "-1", "--format=%H%x09%cs%x09%s", commit)[0] for commit in tag_names]
    versions = [_Version(NOW, "", "", len(project.scan_ids()), "the work tree")]
    for line in sorted({*log, *tagged}, key=lambda text: text.split("\t")[1], reverse=True):
        commit, date, subject = line.split("\t", 2)
        scans = sum(path.endswith(f"/{SCAN_FILE_NAME}") for path in _tree(project, commit))
        versions.append(_Version(tag_names.get(commit, commit[:10]), commit, date, scans, subject))
    return versions


def changes_between(project: Project, old: str, new: str) -> _Changes:
    """Return the changes between two versions; only reads files that differ."""
    before, after = _files(project, old), _files(project, new)
    differing = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    texts_old = _texts(project, old, [path for path in differing if path in before])
    texts_new = _texts(project, new, [path for path in differing if path in after])
    scans = sorted({PurePosixPath(path).parts[2] for path in differing if path.startswith(_SCANS + "/")})
    return _Changes(
        old,
        new,
        tuple(map(str, _changed(PARAMS_FILE_NAME, texts_old, texts_new))),
        tuple(_scan_change(scan, before, after, texts_old, texts_new) for scan in scans),
    )


def _scan_change(
    scan: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    old: Mapping[str, str],
    new: Mapping[str, str],
) -> _ScanChange:
    folder = f"{_SCANS}/{scan}/"
    scan_file = f"{folder}{SCAN_FILE_NAME}"
    if scan_file not in before or scan_file not in after:
        return _ScanChange(scan, "added" if scan_file in after else "removed")
    paths = sorted(path for path in old.keys() | new.keys() if path.startswith(folder))
    lock = f"{folder}{LOCK_FILE_NAME}"
    return _ScanChange(
        scan,
        "changed",
        raw=tuple(Path(path).stem for path in paths if path.endswith(".dvc")),
        settings=tuple(map(str, _changed(scan_file, old, new))),
        stages=tuple(_changed_stages(old.get(lock, "{}"), new.get(lock, "{}"))),
        metrics=tuple(
            (PurePosixPath(path).parts[3], change)
            for path in paths
            if path.endswith("/metrics.json")
            for change in _changed(path, old, new)
        ),
    )


def _changed(path: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[_ValueChange]:
    """Return the values that differ between two versions of a YAML or JSON file."""
    before, after = (flat(_parse(texts.get(path, "{}"))) for texts in (old, new))
    return [
        _ValueChange(key, before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def _changed_stages(old: str, new: str) -> list[str]:
    before, after = ((parse_yaml(text) or {}).get("stages", {}) for text in (old, new))
    return [
        name for name in sorted(before.keys() | after.keys()) if _outs(before, name) != _outs(after, name)
    ]


def _outs(stages: Mapping[str, Any], name: str) -> dict[str, str]:
    return {output["path"]: output["md5"] for output in stages.get(name, {}).get("outs", [])}


def _parse(text: str) -> Any:
    try:
        return parse_yaml(text) or {}
    except yaml.YAMLError:
        return {"unreadable": text[:40]}


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, str):
        return value[:60]
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)[:60]


def _files(project: Project, version: str) -> dict[str, str]:
    """Return path → blob id of the version's text files."""
    if version != NOW:
        return _tree(project, version)
    paths = [path for path in (project.root / _SCANS).rglob("*") if path.is_file() and _describes(path.name)]
    names = [str(path.relative_to(project.root)) for path in paths] + [PARAMS_FILE_NAME]
    ids = _git(project, "hash-object", "--stdin-paths", stdin="\n".join(names)).split()
    return dict(zip(names, ids, strict=True))


def _tree(project: Project, version: str) -> dict[str, str]:
    entries = _lines(project, "ls-tree", "-r", "--full-tree", version, "--", _SCANS, PARAMS_FILE_NAME)
    parts = [(line.split("\t")[1], line.split()[2]) for line in entries]
    return {path: blob for path, blob in parts if path == PARAMS_FILE_NAME or _describes(path)}


def _describes(name: str) -> bool:
    return name.endswith(_META)


def _texts(project: Project, version: str, paths: list[str]) -> dict[str, str]:
    if version == NOW:
        return {path: (project.root / path).read_text(encoding="utf-8") for path in paths}
    return {path: _git(project, "show", f"{version}:./{path}") for path in paths}


def _lines(project: Project, *arguments: str) -> list[str]:
    return _git(project, *arguments).splitlines()


def _git(project: Project, *arguments: str, stdin: str | None = None) -> str:
    try:
        return run_git(project.root, *arguments, stdin=None if stdin is None else stdin.encode()).decode()
    except CommandError as error:
        raise InputError(
            f"git {arguments[0]} failed ({error.reason}). Versions must be tags or commits of this repository. List "
            "them with 'scan2cut datasets'."
        ) from error


def versions_table(versions: Sequence[_Version]) -> Table:
    """Return a table with one row per version."""
    table = Table("version", "date", "scans", "subject")
    for version in versions:
        table.add_row(version.name, version.date, str(version.scans), version.subject)
    return table


def changes_table(changes: _Changes) -> Table:
    """Return a table of the changes: parameters of all scans, then one row per scan."""
    table = Table("scan", "", "changes", title=f"from {changes.old} to {changes.new}")
    if changes.params:
        table.add_row("all", "params.yaml", "\n".join(changes.params))
    for scan in changes.scans:
        lines = [f"raw file {name}" for name in scan.raw]
        lines += [f"setting {text}" for text in scan.settings]
        lines += [f"outputs of {', '.join(scan.stages)}"] if scan.stages else []
        lines += [f"{stage}: {change.as_figure()}" for stage, change in scan.metrics]
        table.add_row(scan.scan, scan.kind, "\n".join(lines))
    if not changes.params and not changes.scans:
        table.add_row("", "", "none")
    return table


# Objects in DVC's cache that a version needs.


def tags(project: Project) -> list[str]:
    """Return the names of all git tags."""
    return _lines(project, "tag", "--list")


def needed_objects(project: Project, version: str = NOW) -> dict[str, str]:
    """Return md5 → path of all raw files and outputs that a version of the dataset records; folders end with .dir.

    Metrics are in git, not in the cache.
    """
    paths = [path for path in _files(project, version) if path.endswith((LOCK_FILE_NAME, ".dvc"))]
    needed: dict[str, str] = {}
    for path, text in _texts(project, version, paths).items():
        content = _parse(text)
        if path.endswith(LOCK_FILE_NAME):
            stages = content.get("stages", {}).values() if isinstance(content, dict) else ()
            outputs = [(out, str(out.get("path", ""))) for stage in stages for out in stage.get("outs", ())]
        else:
            folder = PurePosixPath(path).parent
            outputs = [(out, str(folder / str(out.get("path", "")))) for out in content.get("outs", ())]
        for out, name in outputs:
            if "md5" in out and not name.endswith("metrics.json"):
                needed[str(out["md5"])] = name
    return needed


def configures_remote(project: Project, version: str) -> bool:
    """Return whether a clone at this version knows a default DVC remote."""
    config = ConfigParser(interpolation=None, strict=False)
    try:
        config.read_string(run_git(project.root, "show", f"{version}:./.dvc/config").decode())
    except (CommandError, ConfigError, UnicodeDecodeError):
        return False
    return config.has_option("core", "remote")


# History of one scan: its recorded runs and the commits that changed it.


def scan_history(project: Project, scan_id: str) -> list[dict[str, Any]]:
    """Return runs and commits of a scan, oldest first: when, what, changes since the last run, main figures."""
    known_scans(project, [scan_id])
    rows: list[dict[str, Any]] = []
    last: dict[str, Any] = {}
    for run in read_runs(project.scan_dir(scan_id)):
        computed = run.get("computed") or []
        rows.append(
            {
                "when": run["finished"],
                "what": f"run: {run['error']}" if run.get("error") else "run",
                "changes": _run_changes(last, run) if last else ["first recorded run"],
                "computed": computed,
                "figures": run.get("figures") or {},
            }
        )
        last = run
    return sorted([*rows, *_commits(project, scan_id)], key=lambda row: _seconds(row["when"]))


def _run_changes(last: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    before, after = ({k: v for k, v in (r.get("settings") or {}).items() if k != "id"} for r in (last, run))
    changes = [
        f"{key}: {_shown(before.get(key))} → {_shown(after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
    old_files, new_files = last.get("files") or {}, run.get("files") or {}
    changes += [f"another {role}" for role in new_files if old_files.get(role) != new_files[role]]
    if last.get("params") != run.get("params"):
        changes.append(f"{PARAMS_FILE_NAME} changed")
    return changes


def _commits(project: Project, scan_id: str) -> list[dict[str, Any]]:
    folder = f"{_SCANS}/{scan_id}"
    try:
        log = _lines(project, "log", f"-{_MAX_VERSIONS}", "--format=%h%x09%cI%x09%s", "--", folder)
    except (InputError, OSError):  # no git repository, or none with a commit
        return []
    rows = []
    for line in log:
        commit, when, subject = line.split("\t", 2)
        rows.append(
            {
                "when": when,
                "what": f"commit {commit}: {subject}",
                "changes": [],
                "computed": [],
                "figures": main_figures(partial(_metrics_at, project, commit, folder)),
            }
        )
    return rows


def _metrics_at(project: Project, commit: str, folder: str, stage: str) -> Mapping[str, Any]:
    try:
        content = json.loads(run_git(project.root, "show", f"{commit}:./{folder}/{stage}/metrics.json"))
    except (CommandError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _seconds(when: str) -> float:
    try:
        return datetime.fromisoformat(when).timestamp()
    except ValueError:
        return 0.0


def history_table(scan_id: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with one row per run or commit."""
    table = Table("when", "what", "changes since the run before", "computed", "main figures", title=scan_id)
    for row in rows:
        is_run = row["what"].startswith("run")
        figures = [figure(key.partition(".")[2], value) for key, value in row["figures"].items()]
        table.add_row(
            row["when"][:16].replace("T", " "),
            row["what"],
            "\n".join(row["changes"]) or ("none" if is_run else ""),
            ", ".join(row["computed"]) or ("nothing" if is_run else ""),
            "\n".join(figures),
        )
    return table
