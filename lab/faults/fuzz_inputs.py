"""Feed damaged scans, logs, YAML, names, arguments and artifacts to their readers.

Damaged at random, or made on purpose (lab.faults.fuzz_crafted: sparse files, bombs, impossible numbers). Every input
must end in success or in an InputError with a sentence, within 10 s of CPU time and 2 GB of memory; a command line in
exit code 0, or in 2 with a sentence (lab.faults.fuzz_commands). Input N of seed S is always the same; one that goes
wrong is printed, and `python -m lab.faults.fuzz_inputs 1 --seed S --first N` repeats it.
"""

import argparse
import faulthandler
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lab.faults.fuzz_commands import COMMANDS, MAX_COMMAND_S, run_damaged
from lab.faults.fuzz_crafted import MAKERS
from pipelines.cli.run import parse_overrides
from pipelines.cli.show import validate_file
from pipelines.many.batch import capacity
from pipelines.many.inbox import find_deliveries
from pipelines.project import Project
from pipelines.runs.deployment import in_inbox
from pipelines.scans.register import scan_id_of
from stages.clean.scan_file import read_scan
from stages.ingest.ingest import ingest
from stages.ingest.log_file import read_log
from stages.runtime.artifacts import write_json, write_table
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from stages.runtime.scan_file import read_scan_file

ROOT = Path(__file__).parents[2]
MAX_S, MAX_BYTES = 10, 16_000_000_000
"""The second is a bound of the address space, of which libraries reserve gigabytes."""
MAX_MORE_GB = 1.6
"""Memory for one input, beside the 0.4 GB of a process that has imported the readers."""
MAX_SEED_BYTES = 200_000
"""Of a file that is damaged: larger ones only take longer."""
TOKENS = (
    *(
        "nan",
        "-inf",
        "1e999",
        "9" * 5000,
        "-1",
        "0",
        "2001-13-01",
        "!!timestamp x",
        "!!python/object:os.system [x]",
    ),
    *(
        "*a",
        "&a [*a]",
        "[" * 3000,
        "{" * 3000,
        "null",
        "true",
        "'1'",
        '"\\0"',
        "\0",
        "\ufeff",
        "\udcff",
        "../../etc",
    ),
    *("/dev/zero", "$(touch x)", "${id}", "%s%n", ",", "\t", "\r\n", "id:", "---", "..."),
)
PARAMS = load_params(ROOT / "params.yaml")


@dataclass(frozen=True)
class Kind:
    """Inputs of one sort: what is damaged, and who reads it."""

    seeds: tuple[tuple[str, bytes], ...]
    """File names and good contents."""
    read: Callable[[Path], object]
    max_s: int = MAX_S
    make: Callable[[Path, random.Random], Path] | None = None
    """Writes a file made on purpose, instead of a damaged good one."""


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content after one to eight accidents."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4, 8))):
        where = draw.randrange(len(data) + 1)
        match draw.randrange(6):
            case 0 if data:
                data[where % len(data)] ^= 1 << draw.randrange(8)
            case 1:
                del data[where:]
            case 2:
                del data[where : where + draw.randint(1, 64)]
            case 3:
                data[where:where] = draw.choice(TOKENS).encode("utf-8", "surrogateescape")
            case 4:
                data[where:where] = data[where : where + draw.randint(1, 400)] * draw.randint(1, 20)
            case _:
                data[where : where + 8] = draw.randbytes(8)
    return bytes(data)


def _scan_yaml(path: Path) -> object:
    (path.parent / "apple.ply").touch()
    read_scan_file(path.parent)
    return load_params(ROOT / "params.yaml", path)


def _override(path: Path) -> object:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return parse_overrides([text[:20_000]])


def _name(path: Path) -> object:
    text = path.read_bytes().decode("utf-8", "surrogateescape")[:300]
    in_inbox(Project(path.parent), text)
    return scan_id_of(Path(text))


def _number(path: Path) -> object:
    try:
        value = float(path.read_bytes()[:50])
    except ValueError:
        return None  # the command line refuses what is no number
    return capacity(value)


def _inbox(path: Path) -> object:
    return find_deliveries(path.parent)


def _log_seeds() -> tuple[tuple[str, bytes], ...]:
    time_s = np.linspace(0.0, 1.0, 100)
    frame = pl.DataFrame(
        {"time": time_s, **{name: np.sin(time_s) for name in ("x", "y", "z", "fx", "fy", "fz")}}
    )
    arrays: dict[str, Any] = {"time": time_s, "position": np.zeros((100, 3)), "force": np.ones((100, 3))}
    with tempfile.TemporaryDirectory() as folder:
        parquet, npz = Path(folder) / "log.parquet", Path(folder) / "log.npz"
        frame.write_parquet(parquet)
        np.savez(npz, **arrays)
        sample = next((ROOT / "data" / "sample").glob("*log.json")).read_bytes()[:MAX_SEED_BYTES]
        return (
            ("log.csv", frame.write_csv().encode()),
            ("log.json", sample),
            ("log.parquet", parquet.read_bytes()),
            ("log.npz", npz.read_bytes()),
            ("log.pkl", pickle.dumps(arrays)),
            ("log.bag", b"#ROSBAG V2.0\n" + bytes(200)),
            ("log.mcap", b"\x89MCAP0\r\n" + bytes(200)),
            ("log.db3", b"SQLite format 3\0" + bytes(200)),
        )


def _scan_seeds() -> tuple[tuple[str, bytes], ...]:
    corners = [(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)]
    triangles = [(0, 1, 2), (1, 3, 2), (4, 6, 5), (5, 6, 7), (0, 4, 1), (1, 4, 5)]
    obj = "".join(f"v {x} {y} {z}\n" for x, y, z in corners)
    obj += "".join(f"f {a + 1} {b + 1} {c + 1}\n" for a, b, c in triangles)
    off = "OFF\n8 6 0\n" + "".join(f"{x} {y} {z}\n" for x, y, z in corners)
    off += "".join(f"3 {a} {b} {c}\n" for a, b, c in triangles)
    stl = bytes(80) + (6).to_bytes(4, "little") + bytes(50 * 6)
    xyz = "".join(f"{x} {y} {z}\n" for x, y, z in corners)
    pcd = (
        "VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH 8\nHEIGHT 1\nPOINTS 8\nDATA ascii\n"
        + xyz
    )
    ply = (ROOT / "data" / "sample" / "synthetic_apple.ply").read_bytes()[:MAX_SEED_BYTES]
    texts = {"scan.obj": obj, "scan.off": off, "scan.xyz": xyz, "scan.pcd": pcd}
    return (
        ("scan.ply", ply),
        ("scan.stl", stl),
        *((name, text.encode()) for name, text in texts.items()),
    )


def _artifact_seeds() -> tuple[tuple[str, bytes], ...]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        faces = pl.DataFrame(
            [pl.Series("vertices", np.zeros((500, 3), np.int32), dtype=pl.Array(pl.Int32, 3))]
        )
        paths = (
            write_table(folder, "clean/faces", faces),
            write_json(folder, "clean/metrics", {"volume_m3": 1e-4, "unit": "m"}),
        )
        return tuple((f"clean/{path.name}", path.read_bytes()) for path in paths)


def kinds() -> dict[str, Kind]:
    """All sorts of inputs."""
    clean, ingest = PARAMS.clean, PARAMS.ingest.changed(allow_pickle=True)
    scan = (
        "id: apple\nscan: apple.ply\nlog: null\ncut_surface: apple.ply\nmaterial: apple\nclean: {unit: mm}\n"
    )
    manifest = "scan: a.ply\nlog: b.json\nair: [c.json]\nid: fuji\nsettings: {clean: {unit: mm}}\n"
    return {
        "scan": Kind(
            _scan_seeds(), lambda p: read_scan(p, max_faces=clean.max_faces, max_bytes=clean.max_bytes)
        ),
        "log": Kind(_log_seeds(), lambda p: read_log(p, ingest)),
        "params.yaml": Kind((("params.yaml", (ROOT / "params.yaml").read_bytes()),), load_params),
        "scan.yaml": Kind((("apple/scan.yaml", scan.encode()),), _scan_yaml),
        "manifest": Kind((("a.scan2cut.yaml", manifest.encode()),), _inbox),
        "--set": Kind((("set", b"clean.scale=0.5"), ("set", b"precut.plane_normal=[1, 0, 0]")), _override),
        "name": Kind((("name", b"My Apple (2).ply"), ("name", b"../inbox/apple.ply")), _name),
        "--memory-gb": Kind((("number", b"2.0"), ("number", b"nan"), ("number", b"inf")), _number),
        "artifact": Kind(_artifact_seeds(), validate_file),
        "command": Kind(tuple(("line", line.encode()) for line in COMMANDS), run_damaged, MAX_COMMAND_S),
        **{name: Kind((), _scan_or_log, make=make) for name, make in MAKERS.items()},
    }


def _scan_or_log(path: Path) -> object:
    """What a registered file meets in clean or ingest."""
    if path.name.startswith("scan"):
        return read_scan(path, max_faces=PARAMS.clean.max_faces, max_bytes=PARAMS.clean.max_bytes)
    log = read_log(path, PARAMS.ingest)
    return ingest(log, PARAMS.ingest, source=path.name)


class TooLongError(BaseException):
    """The input took too long; not an Exception, so that no reader can swallow it."""


def _alarm(_number: int, _frame: object) -> None:
    raise TooLongError


def outcome(kind: Kind, draw: random.Random) -> str:
    """'read', 'refused', or what went wrong, for one input."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        if kind.make is not None:
            path = kind.make(Path(folder), draw)
        else:
            name, content = draw.choice(kind.seeds)
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(damaged(content, draw))
        if kind.read is run_damaged:
            signal.alarm(kind.max_s)  # a process of its own
        else:
            signal.setitimer(signal.ITIMER_VIRTUAL, kind.max_s)  # CPU time: others may use this machine
        try:
            kind.read(path)
        except InputError as error:
            sentence = str(error).strip()
            return (
                "refused"
                if sentence.endswith((".", ")")) and len(sentence) < 2000
                else f"no sentence: {sentence[:200]}"
            )
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 -- also what Rust libraries raise in a panic
            return (
                f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-2:])}"
            )
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return "read"


def fuzz(count: int, seed: int, first: int = 0) -> tuple[Counter[tuple[str, str]], list[str], float]:
    """Counts by kind and outcome, a paragraph for each input that went wrong, most memory for one input [GB]."""
    signal.signal(signal.SIGALRM, _alarm)
    signal.signal(signal.SIGVTALRM, _alarm)
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    most = 0.0
    table = list(kinds().items())
    for number in range(first, first + count):
        name, kind = table[number % len(table)]
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _peak_gb()
        result = outcome(kind, random.Random(f"{seed}/{number}"))
        needed = _peak_gb() - before
        most = max(most, needed)
        if needed > MAX_MORE_GB and result in ("read", "refused"):
            result = f"{needed:.1f} GB of memory"
        if result not in ("read", "refused"):
            wrong.append(f"input {number} ({name}): {result}")
            result = "WRONG"
        counts[name, result] += 1
    return counts, wrong, most


def _peak_gb() -> float:
    """Largest memory of this process since the peak was cleared [GB]."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e6


def main() -> int:
    """Print the counts; 1 if an input went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    began_s = time.monotonic()
    counts, wrong, most = fuzz(options.count, options.seed, options.first)
    for line in wrong:
        sys.stdout.write(f"{line}\n")
    for (name, result), number in sorted(counts.items()):
        sys.stdout.write(f"{name:12} {result:8} {number:6}\n")
    seconds = time.monotonic() - began_s
    sys.stdout.write(
        f"{options.count} inputs, {len(wrong)} wrong, {seconds:.0f} s, at most {most:.1f} GB for one\n"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
