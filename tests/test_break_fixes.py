"""`scripts.break_fixes` takes out what its list says, notices which test fails, and leaves the copy as it was."""

import re
import shlex
from pathlib import Path

import pytest

from scripts.break_fixes import broken, main, read_fixes, seen_by

ROOT = Path(__file__).parents[1]
CODE = "def limited(value):\n    return min(value, 3)\n"
TESTS = (
    "from code_to_break import limited\n\n\n"
    "def test_limit():\n    assert limited(5) == 3\n\n\n"
    "def test_other():\n    assert limited(1) == 1\n"
)


@pytest.mark.parametrize("fix", read_fixes(), ids=lambda fix: f"{fix['item']} {fix['out']}")
def test_every_fix_of_the_list_is_there_to_be_taken_out(fix):
    """Whoever changes such a line changes the list with it, and sees whether a test still notices."""
    broken((ROOT / fix["file"]).read_text(), fix)
    words = shlex.split(fix["tests"])
    files = [word for word in words if word.startswith("tests/")]
    text = "".join((ROOT / file).read_text() for file in files)
    names = re.findall(r"[a-z_]{5,}", words[words.index("-k") + 1]) if "-k" in words else []
    missing = [name for name in names if name not in text]
    assert files and not missing, missing


@pytest.mark.parametrize(
    ("old", "new", "failed"),
    [("min(value, 3)", "value", ["test_limit"]), ("def limited(value):", "def limited(value):  #", [])],
)
def test_who_notices_is_said_and_the_copy_is_whole_again(tmp_path, old, new, failed):
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "code_to_break.py").write_text(CODE)
    (copy / "test_it.py").write_text(TESTS)
    fix = {"file": "code_to_break.py", "old": old, "new": new, "tests": "test_it.py"}
    assert seen_by(copy, fix) == failed
    assert (copy / "code_to_break.py").read_text() == CODE


@pytest.mark.parametrize("old", ["max(value, 3)", "value"], ids=["gone", "twice"])
def test_a_text_that_is_not_there_once_is_an_error(old):
    with pytest.raises(ValueError, match="correct"):
        broken(CODE, {"file": "code_to_break.py", "old": old, "new": ""})


def test_words_of_no_fix_are_refused(capsys):
    """Nothing tried must not look like nothing missed."""
    assert main(["no", "such", "fix"]) == 2
    assert "No fix has the words no such fix." in capsys.readouterr().err
