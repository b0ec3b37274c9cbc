"""What all commands share: where they print, the `--json` option, the project they work in."""

import json
import os
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from pipelines.scans.project import Project, apply_environment, find_project

WIDTH_OF_A_PIPE = 120
"""Columns to fill where there is no terminal to ask."""

out = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE)
err = Console(stderr=True)
DEBUG_VARIABLE = "SCAN2CUT_DEBUG"
"""In the environment: show the full traceback of an error."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


class OnlyJson:
    """Sends everything that is written to stdout to stderr, except the one object."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._real = os.dup(1)
        os.dup2(2, 1)

    def print(self, value: Any) -> None:
        """Write the object to the real stdout."""
        sys.stdout.flush()
        os.dup2(self._real, 1)
        os.close(self._real)
        print_json(value)


def print_json(value: Any) -> None:
    """Write one line of JSON to stdout."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def this_project() -> Project:
    """The project around the current directory, with its environment set."""
    project = find_project()
    apply_environment(project)
    return project


def stop_soon_on_signals(sentence: str | None = None) -> None:
    """Ctrl-C, SIGTERM and SIGHUP end this command within two seconds, with one line: the sentence, or where it was."""
    from pipelines.dvc.stopping import stop_on_signals
    from pipelines.runs.embedded_server import EMBEDDED_SERVER

    stop_on_signals(EMBEDDED_SERVER.kill, sentence)


def print_text(console: Console, text: str) -> None:
    """Print the text as it is: no markup, no colours, no line breaks that it does not have."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_note(sentence: str) -> None:
    """A sentence about what is being done, on stderr."""
    print_text(err, sentence)


def print_error(sentence: str) -> None:
    """A sentence about what went wrong, on stderr."""
    err.print("[red]error:[/red] ", end="")
    print_text(err, sentence)
