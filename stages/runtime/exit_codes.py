"""Exit codes of stages and commands, the same everywhere."""

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
"""A sentence on stderr says what was wrong, the rule and the remedy."""
EXIT_INPUTS_CHANGED = 75
"""EX_TEMPFAIL of sysexits.h: run it again."""
EXIT_INTERRUPTED = 130
"""What a shell reports for Ctrl-C."""
