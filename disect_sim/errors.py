"""The one error type for input the user can correct."""

LONGEST = 1500
"""Characters of a message; the middle of a longer one, which quotes something endless, is left out."""


class InputError(ValueError):
    """Bad input. The message is a sentence: what was wrong (value), what the rule is, what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence if len(sentence) <= LONGEST else f"{sentence[:600]} ... {sentence[-600:]}")
