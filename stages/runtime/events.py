"""What a running stage tells the outside: JSON lines in the file that an environment variable names.

The stage never knows who listens; without the variable, events go nowhere.
"""

import json
import os
import time
from typing import Any

EVENTS_VARIABLE = "SCAN2CUT_EVENTS"


def someone_listens() -> bool:
    """True if events go anywhere; what only people see need not be made otherwise."""
    return bool(os.environ.get(EVENTS_VARIABLE))


def emit(kind: str, **fields: Any) -> None:
    """Append one event; kinds are progress (fraction, message), picture (path) and error (exit_code, message)."""
    path = os.environ.get(EVENTS_VARIABLE)
    if not path:
        return
    line = json.dumps({"kind": kind, "time_s": time.time(), **fields}) + "\n"
    with open(path, "a", encoding="utf-8") as file:
        file.write(line)
