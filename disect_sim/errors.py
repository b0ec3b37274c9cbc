"""The one error type for input the user can correct."""


class InputError(ValueError):
    """Bad input. The message is a sentence: what was wrong (value), what the rule is, what to do."""
