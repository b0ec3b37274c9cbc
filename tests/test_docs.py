"""The documentation is consistent with the code: links, commands, settings, examples, quoted messages, length."""

import ast
import re
from pathlib import Path

import pytest
import typer

import scan2cut
from pipelines.cli.main import app
from stages.runtime.params import load_params

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [page for page in PAGES if page.name != "artifacts.md"]  # generated, not in git
LAB_PAGES = sorted((ROOT / "lab").rglob("*.md"))

MAX_WORDS = 18_000
"""README, CONTRIBUTING and docs/*.md together, as `wc -w` counts them."""
MIN_MESSAGES = 10
"""Rows of the table of messages that the test must find; fewer means that the table changed its form."""
FILE_SUFFIXES = {"csv", "html", "json", "py"}
"""What follows a section's name in a file name, as in cut.json."""
MIN_PIECE = 8
"""Characters of a quoted message between two values; shorter pieces occur anywhere."""

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LAB_COMMAND = re.compile(r"python -m (lab\.\w+\.\w+)")
SETTING = re.compile(r"\b([a-z_]+)\.([a-z][a-z0-9_]*)\b(?![./])")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
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


def snippets(text: str) -> list[str]:
    """Code spans, and the lines of indented code blocks."""
    blocks = [line.split("  #")[0].strip() for line in text.splitlines() if line.startswith("    ")]
    return re.findall(r"`([^`\n]+)`", text) + blocks


def wrong_commands(text: str) -> list[str]:
    """Snippets that start with `scan2cut` and name a command or an option that does not exist."""
    wrong = []
    for snippet in snippets(text):
        words = snippet.split()
        if words[:1] != ["scan2cut"]:
            continue
        command = typer.main.get_command(app)
        options = {name for parameter in command.params for name in parameter.opts} | {"-h", "--help"}
        for word in words[1:]:
            subcommands = getattr(command, "commands", {})
            if word in subcommands:
                command = subcommands[word]
                options |= {name for parameter in command.params for name in parameter.opts}
            elif subcommands and re.fullmatch(r"[a-z]+", word):
                wrong.append(snippet)
                break
            elif word.startswith("-") and word.split("=")[0] not in options:
                wrong.append(snippet)
    return wrong


def wrong_settings(text: str) -> list[str]:
    """`section.key` in code whose section exists and whose key does not."""
    params = {name: type(section).model_fields for name, section in load_params(ROOT / "params.yaml")}
    named = {match.groups() for snippet in snippets(text) for match in SETTING.finditer(snippet)}
    return sorted(
        f"{section}.{key}"
        for section, key in named
        if section in params and key not in params[section] and key not in FILE_SUFFIXES
    )


def quoted_messages() -> list[str]:
    """First column of the table in docs/usage.md, without backticks."""
    table = (ROOT / "docs" / "usage.md").read_text().split("## Error messages")[1]
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)


def is_quote_of(message: str, texts: list[str]) -> bool:
    """True if one text has all pieces of the message in their order."""
    pieces = [re.escape(piece.strip()) for piece in message.split("…") if len(piece.strip()) >= MIN_PIECE]
    return bool(pieces) and any(re.search(".*".join(pieces), text, re.DOTALL) for text in texts)


@pytest.fixture(scope="module")
def texts_of_code() -> list[str]:
    """String constants of the product; values of formatted strings are replaced by …"""
    texts = []
    for folder in ("stages", "pipelines", "disect_sim"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values]
                    texts.append("".join(parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.append(node.value)
    return texts


@pytest.mark.parametrize("page", [*PAGES, *LAB_PAGES], ids=page_id)
def test_links_resolve(page):
    assert broken_links(page) == []


def test_every_page_can_be_reached_from_the_readme():
    seen, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in seen:
            continue
        seen.add(page)
        links = (target.partition("#")[0] for target in LINK.findall(page.read_text()))
        queue += [(page.parent / link).resolve() for link in links if link.endswith(".md")]
    assert {page_id(page) for page in {*PAGES, *LAB_PAGES} - seen} == set()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "lab" / "README.md"], ids=page_id)
def test_commands_and_options_exist(page):
    assert wrong_commands(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_settings_exist(page):
    assert wrong_settings(page.read_text()) == []


@pytest.mark.skipif(
    not (ROOT / "lab" / "bench").is_dir(), reason="scripts/ and benchmarks/ are not in lab/ yet"
)
@pytest.mark.parametrize("page", [*PAGES, *LAB_PAGES], ids=page_id)
def test_lab_commands_exist(page):
    named = set(LAB_COMMAND.findall(page.read_text()))
    assert [name for name in named if not (ROOT / f"{name.replace('.', '/')}.py").is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_python_examples_compile(page):
    for example in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        compile(example, str(page), "exec")


def test_readme_uses_the_public_python_interface():
    example = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    names = {
        node.attr
        for node in ast.walk(ast.parse(example))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "scan2cut"
    }
    assert names and names <= set(scan2cut.__all__)


def test_documentation_is_short_enough():
    assert sum(len(page.read_text().split()) for page in PAGES) <= MAX_WORDS


def test_quoted_messages_exist(texts_of_code):
    messages = quoted_messages()
    assert len(messages) >= MIN_MESSAGES
    assert [message for message in messages if not is_quote_of(message, texts_of_code)] == []


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (wrong_commands, "`scan2cut bake SCAN`"),
        (wrong_commands, "`scan2cut run SCAN --bake`"),
        (wrong_commands, "    scan2cut run apple.ply --bake   # in a block"),
        (wrong_settings, "`clean.colour`"),
        (wrong_settings, "`--set ingest.colour=red`"),
    ],
)
def test_checks_find_mistakes(check, text):
    assert check(text) != []


def test_checks_accept_correct_text():
    text = "`scan2cut run SCAN --set clean.unit=mm`, `scan2cut library add apple`, `stages/clean/params.py`"
    assert wrong_commands(text) + wrong_settings(text) == []
