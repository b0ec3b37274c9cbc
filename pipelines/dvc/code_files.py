"""Which of the project's files a stage's code consists of, found by following its imports.

DVC does not follow imports, so the template lists these files. The runtime is not among them: it decides how files are
read and written, not what is in them, and has a version of its own (stages/runtime/version.py).
"""

import ast
from pathlib import Path

PACKAGES = ("stages", "disect_sim")
RUNTIME = "stages/runtime"
LIGHT_FACE = "disect_sim/__init__.py"
"""Names of the simulator that load their module on first use; followed to that module."""


def code_of(root: Path, folders: list[str]) -> list[str]:
    """Paths relative to `root`: the folders, and all that they import; a folder that is needed whole is one path."""
    needed: set[Path] = set()
    waiting = [path for folder in folders for path in (root / folder).rglob("*.py")]
    while waiting:
        path = waiting.pop()
        if path not in needed and not path.is_relative_to(root / RUNTIME):
            needed.add(path)
            waiting += imported_files(root, path)
    own = tuple(root / folder for folder in folders)
    outside = {p for p in needed if not any(p.is_relative_to(f) for f in own) and not _is_only_text(p)}
    data = {f for p in outside for f in p.parent.iterdir() if f.is_file() and not _is_code(f)}
    return [*folders, *_joined(root, outside | data)]


def imported_files(root: Path, path: Path) -> list[Path]:
    """The project's files that the file imports, now or inside a function."""
    if path == root / LIGHT_FACE:
        return []
    return [
        found
        for module in _modules(ast.parse(path.read_text(encoding="utf-8")))
        for found in _files_of(root, module)
    ]


def _modules(node: ast.AST) -> list[str]:
    """Imported modules, those for type checkers only left out."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return []
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    chosen = _chosen_by_name(node)
    return [*chosen, *(module for child in ast.iter_child_nodes(node) for module in _modules(child))]


def _chosen_by_name(node: ast.AST) -> list[str]:
    """`import_module(f"package.{name}")` may import any module of the package: "package.*"."""
    if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module"):
        return []
    if isinstance(node.args[0], ast.JoinedStr) and isinstance(node.args[0].values[0], ast.Constant):
        return [f"{str(node.args[0].values[0].value).rstrip('.')}.*"]
    return []


def _files_of(root: Path, module: str) -> list[Path]:
    parts = module.split(".")
    if parts[0] not in PACKAGES:
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
    """The module behind a name of the simulator's public face."""
    for node in ast.parse((root / LIGHT_FACE).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_HOME":
            return str(ast.literal_eval(node.value)[name])
    raise KeyError(f"{LIGHT_FACE} has no table _HOME")


def _is_only_text(path: Path) -> bool:
    """A package's docstring, or the table of names of disect_sim's public face."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return path.as_posix().endswith(LIGHT_FACE) or all(isinstance(node, ast.Expr) for node in body)


def _is_code(path: Path) -> bool:
    return path.suffix in (".py", ".pyc", ".so")


def _joined(root: Path, files: set[Path]) -> list[str]:
    """The files, sorted; folders of which every file is there stand for their files."""
    whole = {folder for folder in {f.parent for f in files} if _holds_only(folder, files)}
    outermost = {f for f in whole if not any(other in f.parents for other in whole)}
    single = {f for f in files if not any(folder in f.parents for folder in outermost)}
    return sorted(path.relative_to(root).as_posix() for path in outermost | single)


def _holds_only(folder: Path, files: set[Path]) -> bool:
    inside = [f for f in folder.rglob("*") if f.is_file() and f.suffix not in (".pyc", ".so")]
    return all(f in files or (f.suffix == ".py" and _is_only_text(f)) for f in inside)
