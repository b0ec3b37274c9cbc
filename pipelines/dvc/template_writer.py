"""Write the generated files: the DVC template of the pipeline and the reference page of all artifacts."""

import ast
import json
from pathlib import Path

from pipelines.project import TEMPLATE
from stages.runtime.catalogue import ARTIFACTS, STAGES, base_of, readers_of
from stages.runtime.describe import Artifact, Stage
from stages.runtime.files import write_bytes_atomic

_DOCUMENT = Path("docs/artifacts.md")
"""Written by `scan2cut dev artifacts`; not committed."""
_PAGE_HEAD = """# Artifacts

Generated from stages/*/description.py by `scan2cut dev artifacts`; edit those, not this file.

Paths are relative to the scan's directory `data/scans/<id>/`. Tables are Parquet; a vector is a fixed-size
array column. Every table has, in its file metadata under `scan2cut.`, its artifact name, schema (a hash of the
columns), units and the format version. Parameters, inputs and code of a stage are recorded separately in its
`provenance.json`, so that equal content gives equal files. Numbers are finite and no value is missing; readers reject
anything else. Metrics are one JSON object. Validate a file with `scan2cut validate FILE`.
"""


def document() -> str:
    """Return the text of docs/artifacts.md."""
    parts = [_PAGE_HEAD]
    stage = ""
    for artifact in ARTIFACTS.values():
        if artifact.producer != stage:
            stage = artifact.producer
            parts.append(f"## {stage}\n")
            if STAGES[stage].base:
                parts.append(f"{_instance(stage)}\n")
        parts.append(_section(artifact))
    return "\n".join(parts)


def _section(artifact: Artifact) -> str:
    readers = ", ".join(readers_of(artifact)) or "no stage"
    lines = [
        f"### `{artifact.path}`",
        "",
        f"{artifact.meaning[0].upper()}{artifact.meaning[1:]}. "
        f"Written by {artifact.producer}, read by {readers}.",
        "",
    ]
    if artifact.columns and STAGES[artifact.producer].base:
        base = artifact.path.replace(artifact.producer, base_of(artifact.producer), 1)
        lines += [f"Columns as in `{base}`.", ""]
    elif artifact.columns:
        lines += ["| column | dtype | unit | meaning |", "|---|---|---|---|"]
        lines += [f"| {c.name} | {c.dtype} | {c.unit} | {c.meaning} |" for c in artifact.columns]
        lines.append("")
    return "\n".join(lines)


def _instance(stage: str) -> str:
    renamed = ", ".join(f"{new} in place of {old}" for old, new in STAGES[stage].renamed)
    return f"Second instance of the stage {base_of(stage)} with its own parameters; reads {renamed}."


# Source files of a stage. DVC does not follow imports, so the template lists the imported files, except the runtime: it
# determines how files are read and written, not their content, and has its own version (stages/runtime/version.py).


_PACKAGES = ("stages", "disect_sim")
_RUNTIME = "stages/runtime"
_LIGHT_FACE = "disect_sim/__init__.py"
"""Public names of the simulator, each loaded from its module on first use."""


_ABOUT = (".md", ".toml", ".typed")
"""Suffixes of files that describe a package and change no result."""


def _code_of(root: Path, folders: list[str]) -> list[str]:
    """Return the folders and all files they import, relative to `root`; a fully imported folder is one path."""
    needed: set[Path] = set()
    waiting = [path for folder in folders for path in (root / folder).rglob("*.py")]
    while waiting:
        path = waiting.pop()
        if path not in needed and not path.is_relative_to(root / _RUNTIME):
            needed.add(path)
            waiting += _imported_files(root, path)
    own_folders = tuple(root / folder for folder in folders)
    outside = {
        p for p in needed if not any(p.is_relative_to(f) for f in own_folders) and not _is_only_text(p)
    }
    beside = {f for p in outside for f in p.parent.iterdir() if f.is_file() and not _is_code(f)}
    data = {f for f in beside if f.suffix not in _ABOUT}
    return [*folders, *_joined(root, outside | data)]


def _imported_files(root: Path, path: Path) -> list[Path]:
    """Return the project files that the file imports, at module level or inside functions."""
    if path == root / _LIGHT_FACE:
        return []
    return [
        imported
        for module in _modules(ast.parse(path.read_text(encoding="utf-8")))
        for imported in _files_of(root, module)
    ]


def _modules(node: ast.AST) -> list[str]:
    """Return the imported modules, except those under TYPE_CHECKING."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return []
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    chosen = _chosen_by_name(node)
    return [*chosen, *(module for child in ast.iter_child_nodes(node) for module in _modules(child))]


def _chosen_by_name(node: ast.AST) -> list[str]:
    """Return "package.*" for `import_module(f"package.{name}")`, which may import any module of the package."""
    if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module"):
        return []
    if isinstance(node.args[0], ast.JoinedStr) and isinstance(node.args[0].values[0], ast.Constant):
        return [f"{str(node.args[0].values[0].value).rstrip('.')}.*"]
    return []


def _files_of(root: Path, module: str) -> list[Path]:
    parts = module.split(".")
    if parts[0] not in _PACKAGES:
        return []
    if parts[-1] == "*":
        return sorted(root.joinpath(*parts[:-1]).glob("*.py"))
    files = []
    for length in range(1, len(parts) + 1):
        base = root.joinpath(*parts[:length])
        files += [path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()]
    if len(parts) == 2 and parts[0] == "disect_sim" and len(files) == 1:
        files += [root / "disect_sim" / f"{_home(root, parts[1])}.py"]
    return [path if path.is_file() else path.with_suffix("") / "__init__.py" for path in files]


def _home(root: Path, name: str) -> str:
    """Return the module that defines a public name of the simulator."""
    for node in ast.parse((root / _LIGHT_FACE).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_HOME":
            return str(ast.literal_eval(node.value)[name])
    raise KeyError(f"{_LIGHT_FACE} has no table _HOME")


def _is_only_text(path: Path) -> bool:
    """Return whether the module has only a docstring, or is disect_sim's table of public names."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return path.as_posix().endswith(_LIGHT_FACE) or all(isinstance(node, ast.Expr) for node in body)


def _is_code(path: Path) -> bool:
    return path.suffix in (".py", ".pyc", ".so")


def _joined(root: Path, files: set[Path]) -> list[str]:
    """Return the sorted files, with complete folders in place of their files."""
    complete = {folder for folder in {f.parent for f in files} if _holds_only(folder, files)}
    outermost = {f for f in complete if not any(other in f.parents for other in complete)}
    single = {f for f in files if not any(folder in f.parents for folder in outermost)}
    return sorted(path.relative_to(root).as_posix() for path in outermost | single)


def _holds_only(folder: Path, files: set[Path]) -> bool:
    inside = [f for f in folder.rglob("*") if f.is_file() and f.suffix not in (".pyc", ".so")]
    return all(f in files or (f.suffix == ".py" and _is_only_text(f)) for f in inside)


_SCAN = "data/scans/${id}"
_LIBRARY = "stages/shared/library/cuts/${material}.json"
_HEAD = """\
# Generated by `scan2cut dev pipeline` from stages/*/description.py and the imports of their code; a scan's
# data/scans/<id>/dvc.yaml contains the stages that have run; `scan2cut` keeps it current. Don't edit
# either. Keys in braces (id, scan, force_log, material, …) come from the scan's scan.yaml. meta is read by the
# flow and never makes a stage stale. `exec` makes the stage a direct child of dvc, so that it ends with it
# (stages/runtime/stage_main.py).
vars:
  - scan.yaml

stages:
"""


def _template_text(root: Path) -> str:
    """Return the text of the template."""
    stages = "\n".join(_stage_text(root, stage) for stage in STAGES.values())
    return _HEAD + stages + _plots_text()


def _stage_text(root: Path, stage: Stage) -> str:
    folders = [f"stages/{name}" for name in dict.fromkeys((stage.code, stage.name))]
    deps = [
        *(f"{_SCAN}/${{{key}}}" for key in stage.files),
        *(f"{_SCAN}/{ARTIFACTS[name].path}" for name in stage.reads),
        *([_LIBRARY] if stage.uses_library else []),
        *_code_of(root, folders),
    ]
    tracked = [*stage.sections, *(["material"] if stage.uses_material else [])]
    params = [
        f"params.yaml: [{', '.join(stage.sections)}]",
        f"{_SCAN}/scan.yaml: [{', '.join(tracked)}]",
        "stages/runtime/version.py: [ARTIFACT_FORMAT]",
    ]
    lines = [
        f"  {stage.name}:",
        f"    desc: {json.dumps(stage.does, ensure_ascii=False)}",
        "    wdir: ../../..",
        f"    cmd: exec python -m stages {stage.name} {_SCAN}",
        *_list("deps", deps),
        *_list("params", params),
        *_list("outs", [_path(a) for a in stage.writes if a.kind not in ("metrics", "plot")]),
        *_list("metrics", [f"{_path(a)}: {{cache: false}}" for a in stage.writes if a.kind == "metrics"]),
        *_list("plots", [_plot(a) for a in stage.writes if a.kind == "plot"]),
        f"    meta: {{retries: {stage.retries}, timeout_s: {stage.timeout_s:g}, key_figure: {stage.key_figure}}}",
    ]
    return "\n".join(lines) + "\n"


def _list(key: str, items: list[str]) -> list[str]:
    return [f"    {key}:", *(f"      - {item}" for item in items)] if items else []


def _path(artifact: Artifact) -> str:
    return f"{_SCAN}/{artifact.path}"


def _plot(artifact: Artifact) -> str:
    return f"{_path(artifact)}: {{x: {artifact.axes[0]}, y: {artifact.axes[-1]}}}"


def _plots_text() -> str:
    """Return the top-level entry `plots`: plots with several curves, which a stage's entry can't describe."""
    several = [a for a in ARTIFACTS.values() if a.kind == "plot" and len(a.axes) > 2]
    if not several:
        return ""
    lines = []
    for artifact in several:
        x, *ys = artifact.axes
        label = {column.name: column.unit for column in artifact.columns}
        lines.append(
            f"  - {artifact.path}: {{x: {x}, y: [{', '.join(ys)}], x_label: 'time [{label[x]}]', "
            f"y_label: 'force [{label[ys[0]]}]'}}\n"
        )
    return "\n# Plots with several curves; paths are relative to the scan's directory.\nplots:\n" + "".join(
        lines
    )


def write_template(root: Path) -> Path:
    """Write the template of a scan's dvc.yaml from the stages' descriptions and imports; return its path."""
    path = root / TEMPLATE
    write_bytes_atomic(path, _template_text(root).encode())
    return path


def write_artifacts_page(root: Path) -> Path:
    """Write docs/artifacts.md: every artifact with its columns and units; return its path."""
    path = root / _DOCUMENT
    write_bytes_atomic(path, document().encode())
    return path
