"""A few damaged inputs of every sort; a thousand are counted in lab/notes/reliability.md."""

import random
import subprocess
from collections import Counter

import pytest

from lab.faults import fuzz_commands
from lab.faults.fuzz_commands import run_damaged
from lab.faults.fuzz_inputs import Kind, fuzz, kinds, outcome
from stages.runtime.errors import InputError

EACH = 3


def test_damaged_inputs_end_in_a_sentence_or_are_read():
    counts, wrong, most = fuzz(len(kinds()) * EACH, seed=3)
    assert wrong == [] and most < 1.6
    of_each = Counter(name for name, _ in counts.elements())
    assert of_each == dict.fromkeys(kinds(), EACH)
    assert {"read", "refused"} == {result for _, result in counts}


def test_the_fuzzer_notices_an_error_that_is_no_sentence():
    def fails(path):
        raise KeyError(path.name)

    assert "KeyError" in outcome(Kind((("a", b"x"),), fails), random.Random(0))
    assert outcome(Kind((("a", b"x"),), lambda path: path), random.Random(0)) == "read"


@pytest.mark.parametrize(
    ("code", "said"),
    [(1, "error: KeyError: 'x' (use --debug for more)"), (2, ""), (2, "Traceback (most recent)."), (-9, "")],
)
def test_a_command_without_a_sentence_or_exit_code_2_is_noticed(tmp_path, monkeypatch, code, said):
    answer = subprocess.CompletedProcess([], code, b"", said.encode())
    monkeypatch.setattr(fuzz_commands.subprocess, "run", lambda *_, **__: answer)
    line = tmp_path / "line"
    line.write_bytes(b"status apple")
    with pytest.raises(RuntimeError, match="exit code"):
        run_damaged(line)


def test_a_command_that_is_read_and_one_that_is_refused(tmp_path):
    for name, words in (("good", b"stages --json"), ("bad", b"status no_such_scan")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "line").write_bytes(words)
    run_damaged(tmp_path / "good" / "line")
    with pytest.raises(InputError):
        run_damaged(tmp_path / "bad" / "line")
