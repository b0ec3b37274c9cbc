"""What changed since the stages of a scan were recorded: the comparison of `dvc status`, fast enough for 1,000 scans.

DVC decides what runs; this is for showing. Code and parameters are hashed once for all scans. What a scan's dvc.lock
and files said at the last look is kept in the state folder, which may be deleted: the lock by content, a file's hash by
size, time and inode, as DVC does. tests/pipelines/test_staleness.py compares the answer with DVC's.
"""

import ast
import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipelines.dvc.commands import cache_dir, cached_file
from pipelines.dvc.pipeline_file import resolve
from pipelines.dvc.repair import LOCK_FILE_NAME, md5_of_file, md5_of_path
from pipelines.project import Project
from stages.runtime.errors import InputError
from stages.runtime.files import parse_yaml, read_mapping
from stages.runtime.scan_file import PIPELINE_FILE_NAME, SCAN_FILE_NAME

_SETTLED_NS = 100_000_000
"""A file changed more recently may change again without a new time."""
_Hash = list[Any]
"""Size, time [ns], inode and md5 of a file."""


class Comparison:
    """Compare recorded stages with the files of one project as they are now."""

    def __init__(self, project: Project) -> None:
        self._project, self._root = project, project.root
        self._cache = cache_dir(project)
        self._shared: dict[str, str | None] = {}
        self._params: dict[str, dict[str, Any] | None] = {}
        self._definitions: dict[str, dict[str, Any]] = {}
        self._in_cache: dict[str, bool] = {}

    def changes(self, scan_id: str) -> dict[str, list[str]]:
        """Return for every recorded stage of the scan what has changed since, as short phrases."""
        folder = self._project.scan_dir(scan_id)
        scan = _Scan(self._project, scan_id)
        recorded = scan.recorded()
        text = (folder / PIPELINE_FILE_NAME).read_text(encoding="utf-8") if recorded else ""
        if text not in self._definitions:
            self._definitions[text] = parse_yaml(text)["stages"] if text else {}
        defined, scan_yaml = self._definitions[text], read_mapping(folder / SCAN_FILE_NAME)
        result = {
            name: self._stage_changes(scan, defined[name], record, scan_yaml) if name in defined else []
            for name, record in recorded.items()
        }
        scan.keep()
        return result

    def _stage_changes(
        self, scan: "_Scan", body: Mapping[str, Any], record: Mapping[str, Any], scan_yaml: Mapping[str, Any]
    ) -> list[str]:
        reasons = []
        for path in (resolve(path, scan_yaml) for path in body.get("deps", [])):
            reasons += self._file_change(scan, path, record["deps"].get(path))
        for item in body.get("params", []):
            for file, keys in item.items():
                path = resolve(file, scan_yaml)
                reasons += self._param_changes(path, keys, record["params"].get(path))
        for item in [*body.get("outs", []), *body.get("plots", []), *body.get("metrics", [])]:
            name, options = (item, {}) if isinstance(item, str) else next(iter(item.items()))
            path = resolve(name, scan_yaml)
            md5 = record["outs"].get(path)
            if md5 is not None and options.get("cache", True) and not self._is_cached(md5):
                reasons.append(f"{path} not in cache")
            else:
                reasons += self._file_change(scan, path, md5)
        if record["cmd"] != resolve(body["cmd"], scan_yaml):
            reasons.append("changed command")
        return list(dict.fromkeys(reasons))  # a scan without a log has the raw file in its place

    def _file_change(self, scan: "_Scan", path: str, md5: str | None) -> list[str]:
        if path.startswith(scan.prefix):
            now = scan.md5_of(path)
        else:
            if path not in self._shared:
                self._shared[path] = md5_of_path(self._root / path)
            now = self._shared[path]
        if now is None:
            return [f"{path} deleted"]
        return [] if now == md5 else [f"{path} modified"]

    def _param_changes(self, path: str, keys: list[str], before: dict[str, Any] | None) -> list[str]:
        if path not in self._params:
            self._params[path] = _read_params(self._root / path)
        now = self._params[path]
        if now is None or before is None:
            return [f"{path} {'deleted' if now is None else 'new'}"]
        states = [
            (key, "deleted" if key not in now else "new" if key not in before else "modified")
            for key in keys
            if key not in now or key not in before or now[key] != before[key]
        ]
        return [f"{path} {', '.join(f'{key} {state}' for key, state in states)}"] if states else []

    def _is_cached(self, md5: str) -> bool:
        if md5 not in self._in_cache:
            self._in_cache[md5] = _is_cached(self._cache, md5)
        return self._in_cache[md5]


def note_recorded(project: Project, scan_id: str) -> None:
    """Note what dvc.lock records now, so that the next look at many scans need not parse it."""
    scan = _Scan(project, scan_id)
    with suppress(InputError):
        scan.recorded()
        scan.keep(also_unseen=True)


class _Scan:
    """What is known of one scan: its recorded stages and the hashes of its files."""

    def __init__(self, project: Project, scan_id: str) -> None:
        self._root, self._folder = str(project.root), project.scan_dir(scan_id)
        self.prefix = f"{self._folder.relative_to(project.root)}/"
        self._file = project.state_dir / f"{scan_id}.seen.json"
        self._seen = _read_seen(self._file)
        self._hashes: dict[str, _Hash] = {}
        self._kept = self._seen
        self._md5: dict[str, str | None] = {}

    def recorded(self) -> dict[str, Any]:
        """Return command, deps, params and outs of every recorded stage."""
        lock = self._folder / LOCK_FILE_NAME
        try:
            data = lock.read_bytes()
        except FileNotFoundError:
            data = b""
        digest = hashlib.sha256(data).hexdigest()
        if self._seen["lock"] != digest:
            stages = read_mapping(lock).get("stages") if data else {}
            self._seen = {**self._seen, "lock": digest, "stages": _reduced(lock, stages)}
        recorded: dict[str, Any] = self._seen["stages"]
        return recorded

    def md5_of(self, path: str) -> str | None:
        """Return DVC's hash of a file or folder of this scan; None if it is missing."""
        if path not in self._md5:
            self._md5[path] = md5_of_path(Path(self._root, path), self._md5_of_file)
        return self._md5[path]

    def _md5_of_file(self, path: Path) -> str:
        status, name = path.stat(), str(path)
        stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
        known = self._seen["hashes"].get(name)
        md5 = known[3] if known and known[:3] == stamp else md5_of_file(path)
        if time.time_ns() - status.st_mtime_ns > _SETTLED_NS:
            self._hashes[name] = [*stamp, md5]
        return str(md5)

    def keep(self, *, also_unseen: bool = False) -> None:
        """Keep what was learnt for the next look, if the place can be written; hashes of files not looked at go."""
        seen = {**self._seen, "hashes": self._seen["hashes"] if also_unseen else self._hashes}
        if seen == self._kept:
            return
        with suppress(OSError, TypeError, ValueError):
            text = json.dumps(seen)
            if json.loads(text) == seen:  # JSON has no dates, and only text as keys
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text(text, encoding="utf-8")  # half of it is no JSON and is ignored


def _read_seen(path: Path) -> dict[str, Any]:
    """Return what the last look kept; nothing if the file is missing or not ours."""
    try:
        seen = json.loads(path.read_bytes())
        if all(
            isinstance(seen[key], kind) for key, kind in (("lock", str), ("stages", dict), ("hashes", dict))
        ):
            return dict(seen)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return {"lock": "", "stages": {}, "hashes": {}}


def _reduced(lock: Path, stages: Any) -> dict[str, Any]:
    """Return the parts of dvc.lock that are compared, with hashes by path."""
    try:
        return {
            name: {
                "cmd": body["cmd"],
                "deps": {dep["path"]: dep["md5"] for dep in body.get("deps", [])},
                "params": body.get("params", {}),
                "outs": {out["path"]: out["md5"] for out in body.get("outs", [])},
            }
            for name, body in (stages or {}).items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{lock} lacks a command, a path or a hash ({error}). DVC writes it. Run the scan again, which "
            "restores its last valid copy."
        ) from error


def _read_params(path: Path) -> dict[str, Any] | None:
    """Return the values of a parameter file, YAML or the constants of a Python module; None if it is missing."""
    if not path.is_file():
        return None
    if path.suffix != ".py":
        return read_mapping(path)
    values: dict[str, Any] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            with suppress(ValueError):
                value = ast.literal_eval(node.value)
                values |= {target.id: value for target in node.targets if isinstance(target, ast.Name)}
    return values


def _is_cached(cache: Path, md5: str) -> bool:
    """Return whether DVC's cache has this content, for a folder also all its files."""
    path = str(cached_file(cache, md5))
    if not os.access(path, os.F_OK):
        return False
    if not md5.endswith(".dir"):
        return True
    try:
        entries = json.loads(Path(path).read_bytes())
        return all(os.access(cached_file(cache, entry["md5"]), os.F_OK) for entry in entries)
    except (OSError, ValueError, KeyError, TypeError):
        return False
