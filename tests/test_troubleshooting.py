"""Every sentence that docs/troubleshooting.md quotes is one that the code says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEAST_QUOTES = 30
LEAST_PIECE = 8
"""Characters; shorter pieces between two values would be found anywhere."""


def quotes() -> list[str]:
    """The first cell of each row, without its backticks."""
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    return list(rows)


def texts() -> list[str]:
    """All texts of the code; of those with values in them, the parts between the values, run together by a mark."""
    found = []
    for folder in ("stages", "pipelines", "disect_sim"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values]
                    found.append("".join(parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return found


def is_said(quote: str, said: list[str]) -> bool:
    """True if one text has all pieces of the quote in their order."""
    pieces = [re.escape(piece.strip()) for piece in quote.split("…") if len(piece.strip()) >= LEAST_PIECE]
    return bool(pieces) and any(re.search(".*".join(pieces), text, re.DOTALL) for text in said)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return texts()


def test_there_are_as_many_as_the_page_seems_to_have():
    assert len(quotes()) >= LEAST_QUOTES
    assert len(set(quotes())) == len(quotes())


@pytest.mark.parametrize("quote", quotes())
def test_the_code_says_it(quote, said):
    assert is_said(quote, said)


def test_what_nobody_says_is_found():
    assert not is_said("The knife is afraid of … fruits.", texts())
