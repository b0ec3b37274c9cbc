"""A few damaged inputs of every sort; a thousand are counted in docs/reliability.md."""

import random

from scripts.fuzz_inputs import Kind, fuzz, outcome

EACH = 12


def test_damaged_inputs_end_in_a_sentence_or_are_read():
    counts, wrong = fuzz(9 * EACH, seed=3)
    assert wrong == []
    assert len({name for name, _ in counts}) == 9 and sum(counts.values()) == 9 * EACH
    assert {"read", "refused"} == {result for _, result in counts}


def test_the_fuzzer_notices_an_error_that_is_no_sentence():
    def fails(path):
        raise KeyError(path.name)

    assert "KeyError" in outcome(Kind((("a", b"x"),), fails), random.Random(0))
    assert outcome(Kind((("a", b"x"),), lambda path: path), random.Random(0)) == "read"
