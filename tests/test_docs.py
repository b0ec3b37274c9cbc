"""The docs stand alone: links and paths exist, commands exist, the words are those of the field."""

import ast
import io
import re
import tokenize
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])

BANNED_WORDS = (
    "house", "houses", "rooms", "told", "stranger", "strangers", "phone book", "hands of a stage",
    "mend", "mends", "mended", "mending", "teller",
)  # fmt: skip
"""Private words; whole words, in any case. Write: project, packages, reported, untrusted, table, correct."""

OUTSIDE = {
    r"(?<!stages/)\bshared/": "a folder outside the repository (real data: SCAN2CUT_REAL_DATA, docs/real_data.md)",
    r"\bissue\s+#?\d+|#\d+\b(?!\))": "an issue's number",
    r"\bthe issue\b|\bissue's\b": "an issue",
    r"\b(earlier|previous|last) session\b": "who measured, and when",
}
"""What a reader of the repository alone can't look up: pattern → what it is."""

CODE_FOLDERS = ("benchmarks", "disect_sim", "pipelines", "scripts", "stages", "tests")
"""Folders whose Python files are checked for banned words too: names, comments and docstrings."""

EXAMPLE = re.compile(r"stages/weigh/|tests/stages/weigh/")
"""The stage that docs/newcomer.md invents."""

PATH = re.compile(r"(?:stages|pipelines|disect_sim|scripts|benchmarks|tests|docs|data/sample)/[\w./*-]+")
MODULE = re.compile(r"python -m ((?:stages|pipelines|disect_sim|scripts|benchmarks)(?:\.\w+)*)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> list:
    return [pytest.param(page, id=page.name) for page in DOCS]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+\s+(.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    return broken


def code_spans(text: str) -> list[str]:
    """What stands in backticks, and the lines of code blocks."""
    blocks = [line for line in text.splitlines() if line.startswith("    ")]
    return re.findall(r"`([^`\n]+)`", text) + blocks


def missing_paths(text: str) -> list[str]:
    missing = []
    for span in code_spans(text):
        for found in PATH.findall("" if "<" in span else span):
            path = found.rstrip(".")
            if not EXAMPLE.match(path) and not any(ROOT.glob(path)):
                missing.append(path)
    return missing


def missing_modules(text: str) -> list[str]:
    found = {module for span in code_spans(text) for module in MODULE.findall(span)}
    return sorted(name for name in found if find_spec(name) is None)


def banned(text: str) -> list[str]:
    return [word for word in BANNED_WORDS if re.search(rf"\b{word}\b", text, re.IGNORECASE)]


def outside(text: str) -> list[str]:
    prose = LINK.sub("", text)
    return [
        f"{what}: {m[0]!r}" for rule, what in OUTSIDE.items() for m in re.finditer(rule, prose, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", pages())
def test_links_resolve(page):
    assert broken_links(page) == []


@pytest.mark.parametrize("page", pages())
def test_paths_and_commands_exist(page):
    text = page.read_text()
    assert missing_paths(text) == []
    assert missing_modules(text) == []


@pytest.mark.parametrize("page", pages())
def test_words_are_those_of_the_field(page):
    assert banned(page.read_text()) == []


@pytest.mark.parametrize("page", pages())
def test_nothing_outside_the_repository_is_needed(page):
    assert outside(page.read_text()) == []


def test_every_page_can_be_reached_from_the_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        links = (target.partition("#")[0] for target in LINK.findall(page.read_text()))
        waiting += [(page.parent / link).resolve() for link in links if link.endswith(".md")]
    assert {page.name for page in set(DOCS) - seen} == set()


@pytest.mark.parametrize("folder", CODE_FOLDERS)
def test_words_in_code(folder):
    """Names, comments and docstrings; other strings may hold a file's own words."""
    faults = {
        f"{path.relative_to(ROOT)}:{line}": words
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in words_of(path.read_text())
        if (words := banned(text))
    }
    assert faults == {}


def words_of(source: str) -> list[tuple[int, str]]:
    """(line, text) of the comments, docstrings and names of a Python file; names are split at underscores."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = [
        (token.start[0], token.string.replace("_", " "))
        for token in tokens
        if token.type in (tokenize.COMMENT, tokenize.NAME)
    ]
    strings = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    return found + [
        (value.lineno, value.value)
        for value in strings
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    ]


def test_every_script_says_what_it_is_for_and_how_it_is_run():
    listed = (ROOT / "docs" / "scripts.md").read_text()
    for path in (ROOT / "scripts").iterdir():
        if path.suffix not in (".py", ".sh") or path.name == "__init__.py":
            continue
        text = path.read_text()
        is_command = "__main__" in text or path.suffix == ".sh"
        name = f"python -m scripts.{path.stem}" if path.suffix == ".py" else f"sh scripts/{path.name}"
        assert (name if is_command else f"scripts/{path.name}") in listed, path.name
        if is_command:
            assert name in text.split("import ")[0], f"{path.name} does not say its command"


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (banned, "What the stage told."),
        (banned, "Strangers' files"),
        (outside, "see ../shared/data"),
        (outside, "as issue 5 asks"),
        (missing_paths, "`stages/cleaning/pose.py`"),
        (missing_paths, "in `docs/draw_simulator.py`"),
        (missing_modules, "`python -m docs_scripts.x` and `python -m scripts.nothing`"),
    ],
)
def test_the_checks_find_faults(check, text):
    assert check(text) != []


def test_the_checks_leave_good_text_alone():
    good = "`stages/shared/robots/*.json`, `python -m lab.real_logs.real_data`, `stages/<stage>/params.py`; is there room?"
    assert banned(good) + outside(good) + missing_paths(good) + missing_modules(good) == []
