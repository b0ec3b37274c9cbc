"""Opening a log: check the size, recognise the format by its content, then read it."""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from stages.ingest.description import IngestParams
from stages.ingest.robot_log import RobotLog, parse_json
from stages.runtime.errors import InputError
from stages.shared.input_files import LOG_FORMATS, check_log_size, memory_bound

_START_BYTES = 64


@dataclass(frozen=True)
class LogFile:
    """A log file of unknown format; content is read only when a format needs it."""

    path: Path
    start: bytes
    """The first START_BYTES bytes."""

    @property
    def name(self) -> str:
        """File name for messages."""
        return self.path.name

    @cached_property
    def text(self) -> str | None:
        """The whole file, or None if it is not UTF-8."""
        try:
            return self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            return None

    @cached_property
    def first_line(self) -> str:
        """The first non-empty line, stripped; empty if the file is not text."""
        return (self.text or "").lstrip().partition("\n")[0].strip()

    @property
    def is_json(self) -> bool:
        """True if the file begins like JSON."""
        return self.first_line.startswith(("{", "["))

    @cached_property
    def json(self) -> Any:
        """The whole file, parsed; raises InputError if it is not JSON."""
        return parse_json(self.text or "", self.name)


class _Format(Protocol):
    """Interface of a module in stages/ingest/formats."""

    def recognises(self, file: LogFile) -> bool:
        """Return True if the file is of this format."""

    def read(self, file: LogFile, params: IngestParams) -> RobotLog:
        """Return the log; raise InputError with the reason if it can't be read."""


def read_log(path: Path, params: IngestParams) -> RobotLog:
    """Read a log of any known format."""
    file = open_log(path, params)
    with memory_bound(params.max_bytes, path.name) if file.is_json else nullcontext():
        for name in LOG_FORMATS:
            reader = log_format(name)
            if reader.recognises(file):
                return reader.read(file, params)
        raise _unknown(file)


def open_log(path: Path, params: IngestParams) -> LogFile:
    """Return a log whose format is not known yet; its size is checked."""
    if not path.is_file():
        raise InputError(f"{path} does not exist. The log must be a file. Give it again with --log.")
    check_log_size(path, params.max_bytes, path.name)
    with path.open("rb") as opened:
        return LogFile(path, opened.read(_START_BYTES))


def log_format(name: str) -> _Format:
    """Return the module of the format."""
    module: Any = import_module(f"stages.ingest.formats.{name}")
    return module


def _unknown(file: LogFile) -> InputError:
    if file.is_json:
        content = file.json
        keys = ", ".join(list(content)[:8]) if isinstance(content, dict) else type(content).__name__
        return InputError(
            f"{file.name} is JSON but not a log of a known layout (it contains {keys or 'nothing'}). It must have time "
            "and O_T_EE or q, and O_F_ext_hat_K or tau_ext_hat_filtered. Export it as CSV and name its columns in "
            "ingest.columns."
        )
    titles = "; ".join(entry.title for entry in LOG_FORMATS.values())
    return InputError(
        f"{file.name} has an unknown format. It must be one of: {titles}. Export it as one of these."
    )
