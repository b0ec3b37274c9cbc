"""The error that is shown to a person."""

import pickle

from disect_sim.outcome import LONGEST, InputError


def test_the_middle_of_an_endless_message_is_left_out():
    """Its beginning says what is wrong, its end what to do."""
    error = InputError(f"The name is {100_000 * 'a'}. Correct it.")
    assert len(str(error)) < LONGEST
    assert str(error).startswith("The name is a") and str(error).endswith("a. Correct it.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error), "as worker processes send it"
    assert str(InputError(LONGEST * "b")) == LONGEST * "b"
