"""Reading the events that a running stage appends to its file."""

import json
from pathlib import Path
from typing import Any


class EventsTail:
    """Hands out each complete line of a growing JSON-lines file once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_events(self) -> list[dict[str, Any]]:
        """Events written since the last call; a half-written last line waits for the next."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]
