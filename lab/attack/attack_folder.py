"""Edit an exported folder at random, links, files and claims, and ask `scan2cut verify`: nothing may be accepted.

    python -m lab.attack.attack_folder 1000 --seed 1 --state build/attack_folder.json

Of every edit the hashes and the seal are renewed in half of the cases, as someone would who wants it to pass. Edit N of
seed S is always the same; with --state a stopped search goes on where it was. Exit code 1 if an edit was accepted or
verify did not answer with a certificate within 60 s of CPU time.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages.export.certificate import verify
from stages.export.export_files import DOCUMENT, SIBLINGS
from stages.runtime.files import sha256_of_file, sha256_of_value, write_bytes_atomic
from tests.stages.synthetic_cut import PARAMS, certified_folder, motion_table

MAX_S = 60
SAVE_EVERY = 20
NAMES = (
    "json.py",
    "numpy/__init__.py",
    "__pycache__/cut_stream.cpython-311.pyc",
    ".hidden",
    "x.csv",
    "air_cut/y",
    "é",
)


def link(folder: Path, draw: random.Random) -> str:
    """Put a link, a pipe, a folder or a file where none belongs, or a link in the place of a file."""
    kind = draw.choice(["link", "dangling", "pipe", "folder", "file", "instead", "folder instead"])
    path = folder / draw.choice(NAMES)
    if kind == "instead":
        path = folder / draw.choice(sorted(SIBLINGS))
        aside = folder.with_name("aside")
        shutil.move(path, aside)
        path.symlink_to(aside)
    elif kind == "folder instead":
        path = folder / "air_cut"
        shutil.move(path, folder.with_name("air"))
        path.symlink_to(folder.with_name("air"))
    else:
        path.parent.mkdir(exist_ok=True, parents=True)
        if kind == "link":
            path.symlink_to(folder / DOCUMENT)
        elif kind == "dangling":
            path.symlink_to("/nonexistent")
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.write_text("x = 1\n")
    return f"{kind} {path.relative_to(folder)}"


def file(folder: Path, draw: random.Random) -> str:
    """Change the bytes of a file, cut it short, append to it, delete it or exchange two."""
    name = draw.choice(sorted(SIBLINGS))
    path, kind = folder / name, draw.choice(["flip", "cut", "append", "delete", "exchange", "number"])
    data = bytearray(path.read_bytes())
    where = draw.randrange(len(data))
    if kind == "flip":
        data[where] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[where:]
    elif kind == "append":
        data += draw.choice([b"\n", b"0", bytes(data[-200:])])
    elif kind == "exchange":
        other = folder / draw.choice(sorted(SIBLINGS - {name}))
        data = bytearray(other.read_bytes())
    elif kind == "number":
        digits = [i for i, byte in enumerate(data) if 48 <= byte < 57]
        data[draw.choice(digits or [where])] += 1 if digits else 0
        data += b"" if digits else b" "
    if kind == "delete":
        path.unlink()
    else:
        path.write_bytes(bytes(data))
    return f"{kind} {name}"


def claim(folder: Path, draw: random.Random) -> str:
    """Change, remove or add one entry of cut.json, anywhere in it."""
    document = json.loads((folder / DOCUMENT).read_text())
    place: Any = document
    words = []
    key: Any = draw.choice([k for k in document if k != "waypoints"])
    while True:
        words.append(str(key))
        if isinstance(place[key], dict | list) and place[key] and draw.random() < 0.85:
            place = place[key]
            key = draw.choice(list(place) if isinstance(place, dict) else list(range(len(place))))
            continue
        break
    value = place[key]
    kind = draw.choice(["change", "change", "remove", "add"])
    if kind == "remove":
        del place[key]
    elif kind == "add" and isinstance(place, dict):
        place["more"] = draw.choice([1, "text", None, []])
    elif isinstance(value, bool) or value is None:
        place[key] = not value
    elif isinstance(value, int | float):
        place[key] = 2 * value + 1000
    elif isinstance(value, str):
        place[key] = f"{value} "
    else:
        place[key] = [] if value else {"a": 1}
    (folder / DOCUMENT).write_text(json.dumps(document))
    return f"{kind} {'.'.join(words)}"


def reseal(folder: Path) -> None:
    """Renew hashes and seal as far as the document still allows it."""
    document = json.loads((folder / DOCUMENT).read_text())
    certificate = document.pop("certificate", None)
    listed = document.get("siblings_sha256")
    if isinstance(listed, dict):
        for name in listed:
            if (folder / name).is_file():
                listed[name] = sha256_of_file(folder / name)
    if isinstance(certificate, dict):
        certificate["content_sha256"] = sha256_of_value(document)
    (folder / DOCUMENT).write_text(json.dumps(document | {"certificate": certificate}))


class TooLongError(BaseException):
    """Not an Exception, so that verify can't swallow it."""


def _alarm(_number: int, _frame: object) -> None:
    raise TooLongError


EDITS: dict[str, Callable[[Path, random.Random], str]] = {"link": link, "file": file, "claim": claim}


def attempt(good: Path, seed: int, number: int) -> tuple[str, str]:
    """Kind of the edit, and nothing if it was refused, else what went wrong."""
    draw = random.Random(f"{seed}/{number}")
    kind = draw.choice(list(EDITS))
    with tempfile.TemporaryDirectory(prefix="attack-") as place:
        folder = Path(place) / "cut"
        shutil.copytree(good, folder)
        before = {name: (folder / name).read_bytes() for name in SIBLINGS}
        what = EDITS[kind](folder, draw)
        same = kind == "file" and all(
            (folder / name).is_file() and (folder / name).read_bytes() == data
            for name, data in before.items()
        )
        if same:
            return "no change", ""
        sealed = kind != "link" and draw.random() < 0.5
        if sealed:
            reseal(folder)
        signal.setitimer(signal.ITIMER_VIRTUAL, MAX_S)
        try:
            certified = verify(folder).certified
        except (Exception, TooLongError) as error:  # noqa: BLE001 -- whatever comes out is a fault of verify
            return kind, f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        name = f"{kind}, resealed" if sealed else kind
        return name, f"accepted: {what}" if certified else ""


def main() -> int:
    """Print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--for-s", type=float, default=float("inf"))
    options = parser.parse_args()
    state: dict[str, Any] = {"seed": options.seed, "done": 0, "counts": {}, "wrong": []}
    if options.state and options.state.exists():
        state = json.loads(options.state.read_text())
        if state["seed"] != options.seed:
            parser.error(f"{options.state} is of seed {state['seed']}")
    counts, end_s = Counter(state["counts"]), time.monotonic() + options.for_s

    def save() -> None:
        state["counts"] = dict(counts)
        if options.state:
            write_bytes_atomic(options.state, json.dumps(state).encode())

    signal.signal(signal.SIGVTALRM, _alarm)
    with tempfile.TemporaryDirectory(prefix="attack-") as place:
        good = certified_folder(Path(place) / "cut", motion_table(), PARAMS)
        while state["done"] < options.count and time.monotonic() < end_s:
            kind, wrong = attempt(good, options.seed, state["done"])
            counts[kind] += 1
            if wrong:
                state["wrong"].append(f"edit {state['done']} ({kind}): {wrong}")
                print(state["wrong"][-1], flush=True)
            state["done"] += 1
            if state["done"] % SAVE_EVERY == 0:
                save()
        save()
    shown = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"{state['done']} edits ({shown}): {len(state['wrong'])} wrong")
    return 1 if state["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
