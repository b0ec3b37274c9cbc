"""Parsing untrusted JSON: a sentence for everything that is wrong with it."""

import json
from typing import Any

from disect_sim.errors import InputError


def parse_json(text: str, source: str) -> Any:
    """The value; InputError if it is no JSON or nested too deeply for the parser."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise InputError(
            f"{source} nests lists too deeply to be read. A log has at most 3 levels. "
            "Export it as one object of arrays."
        ) from error
    except ValueError as error:
        raise InputError(
            f"{source} is not valid JSON ({error}). It must be whole. Record or export it again."
        ) from error
