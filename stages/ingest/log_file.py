"""Opening a log: size first, then what kind of file it is by its content, then its reader."""

from pathlib import Path

from disect_sim.errors import InputError
from stages.ingest.bag_file import read_bag
from stages.ingest.control_server_json import is_recording, read_recording
from stages.ingest.json_text import parse_json
from stages.ingest.libfranka_csv import is_libfranka, read_libfranka
from stages.ingest.paper_pickle import read_paper_pickle
from stages.ingest.params import IngestParams
from stages.ingest.robot_log import RobotLog
from stages.ingest.state_lines import is_state, read_state_lines
from stages.ingest.table_file import read_csv, read_npz, read_parquet
from stages.shared.inputs.file_size import check_log_size

MAGIC = {
    b"PAR1": "parquet",
    b"PK\x03\x04": "npz",
    b"#ROSBAG V2": "bag",
    b"SQLite format 3": "bag",
    b"\x89MCAP": "bag",
}
FORMATS = (
    "libfranka CSV, RobotState JSON lines, a JSON object of arrays, a ROS recording (.bag, .db3, .mcap), "
    "or CSV, Parquet or NPZ with ingest.columns"
)


def read_log(path: Path, params: IngestParams) -> RobotLog:
    """Read a log of any known format."""
    if not path.is_file():
        raise InputError(f"{path} does not exist. The log must be a file. Give it again with --log.")
    check_log_size(path, params.max_bytes, path.name)
    with path.open("rb") as file:
        start = file.read(64)
    kind = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
    if kind == "parquet":
        return read_parquet(path, params.columns, params.sample_rate_hz, params.max_bytes)
    if kind == "npz":
        return read_npz(path, params.columns, params.sample_rate_hz, params.max_bytes)
    if kind == "bag":
        return read_bag(path, params.columns)
    if path.suffix in (".pkl", ".pickle") or start[:1] == b"\x80":
        return _pickle(path, params)
    return _text(path, params)


def _pickle(path: Path, params: IngestParams) -> RobotLog:
    if not params.allow_pickle:
        raise InputError(
            f"{path.name} is a pickle, which can run any program when it is opened. Pickles are not read by default. "
            "Export the log as NPZ, CSV or Parquet; if you trust its origin: --set ingest.allow_pickle=true."
        )
    return read_paper_pickle(path.read_bytes(), path.name)


def _text(path: Path, params: IngestParams) -> RobotLog:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unknown(path) from error
    first_line = text.lstrip().partition("\n")[0].strip()
    if first_line.startswith(("{", "[")):
        return _json(text, first_line, path)
    if is_libfranka(first_line):
        return read_libfranka(text, path.name)
    if "," in first_line and first_line.isprintable():
        return read_csv(path, params.columns, params.sample_rate_hz)
    raise _unknown(path)


def _json(text: str, first_line: str, path: Path) -> RobotLog:
    if first_line.endswith("}"):
        content = parse_json(first_line, f"{path.name}, line 1")
        if is_state(content):
            return read_state_lines(text, path.name)
    content = parse_json(text, path.name)
    if not is_recording(content):
        keys = ", ".join(list(content)[:8]) if isinstance(content, dict) else type(content).__name__
        raise InputError(
            f"{path.name} is JSON but no log of a known layout (it holds {keys or 'nothing'}). It must have time and "
            "O_T_EE or q, and O_F_ext_hat_K or tau_ext_hat_filtered. Export it as CSV and name its columns in "
            "ingest.columns."
        )
    return read_recording(content, path.name)


def _unknown(path: Path) -> InputError:
    return InputError(f"{path.name} is of no known format. It must be {FORMATS}. Export it as one of these.")
