"""Run a certified programme of slices on a Franka arm. Without --execute nothing moves and nothing is contacted.

    python run_slices.py                                          check hashes and certificates, show the programme
    python run_slices.py --air --execute --robot NAME --host IP   every motion in the air, fruit removed: run this first
    python run_slices.py --execute --robot NAME --host IP         cut, lift, step over, next, after confirmation

The arm must rest at its ready pose. It goes on with the first slice that is not done: what is done is recorded in
slices_done.json beside the logs. --from-slice begins elsewhere, --stop-after ends earlier; there the arm returns to its
ready pose by that slice's own certified move. Each slice has a log of its own (scan2cut executed SCAN --slice).
Needs what the slices' run_cut.py needs. Exit codes: 0 done, 2 rejected and nothing moved, 3 stopped on the way.
"""

import os
import sys

# As in run_cut.py: nothing is imported from this folder before its files are compared with programme.json.
HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120, TID251 -- pathlib may be shadowed
sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != HERE]  # noqa: TID251
sys.dont_write_bytecode = True

import argparse  # noqa: E402
import csv  # noqa: E402
import hashlib  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import signal  # noqa: E402
import stat  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

_DONE = "slices_done.json"


class _RefusalError(Exception):
    """Reason not to move."""


def _say(text: str) -> None:
    """Print to the terminal."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _check_files(folder: Path) -> dict:
    """Return the programme if the folder has only certified files; raise _RefusalError with the reason if not."""
    document = json.loads((folder / "programme.json").read_text(encoding="utf-8"))
    certificate = document.pop("certificate", None)
    if not certificate or certificate.get("certified") is not True:
        raise _RefusalError("programme.json has no valid certificate. Run 'scan2cut slice' again.")
    content = json.dumps(document, sort_keys=True, allow_nan=False).encode()
    if hashlib.sha256(content).hexdigest() != certificate["content_sha256"]:
        raise _RefusalError("programme.json was changed after it was certified. Run 'scan2cut slice' again.")
    for name, digest in document["siblings_sha256"].items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise _RefusalError(f"{name} is missing or was changed. Run 'scan2cut slice' again.")
    folders = {entry["folder"] for entry in document["slices"]}
    for path in folder.iterdir():
        mode, name = path.lstat().st_mode, path.name
        known = name in folders if stat.S_ISDIR(mode) else name in document["siblings_sha256"]
        if (not known and name != "programme.json") or stat.S_ISLNK(mode):
            raise _RefusalError(f"{name} is not a file of this programme. Move it elsewhere.")
    document["certificate"] = certificate
    return document


def _load_slice(folder: Path, entry: dict) -> Any:
    """Return the slice's run_cut.py as a module, which checks its own folder; raise _RefusalError if it refuses."""
    name = f"run_cut_{entry['folder']}"
    spec = importlib.util.spec_from_file_location(name, folder / entry["folder"] / "run_cut.py")
    if spec is None or spec.loader is None:
        raise _RefusalError(f"Slice {entry['number']} has no run_cut.py. Run 'scan2cut slice' again.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SystemExit as refused:
        raise _RefusalError(f"Slice {entry['number']} is refused (see above).") from refused
    if module.DOCUMENT["certificate"]["content_sha256"] != entry["content_sha256"]:
        raise _RefusalError(f"Slice {entry['number']} is another one than in programme.json.")
    return module


def _read_joints(path: Path) -> list:
    """Read joint angles [rad], one row per millisecond."""
    with path.open(newline="", encoding="utf-8") as file:
        return [[float(value) for value in row[1:]] for row in list(csv.reader(file))[1:]]


def _records(folder: Path) -> Path:
    """Return the folder of logs and of the record of what is done: the scan's, or beside a copied programme."""
    scan = next((parent for parent in folder.parents if (parent / "scan.yaml").is_file()), folder.parent)
    return scan / "measured"


def _read_done(folder: Path) -> dict:
    """Return the sha256 of the slices that were cut, by number."""
    try:
        return dict(json.loads((_records(folder) / _DONE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def _note_done(folder: Path, entry: dict) -> None:
    """Record a slice as cut, atomically."""
    path = _records(folder) / _DONE
    content = {**_read_done(folder), str(entry["number"]): entry["content_sha256"]}
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(unfinished, path)


def _chosen(document: dict, done: dict, first: "int | None", last: "int | None", *, air: bool) -> list:
    """Return the slices to cut; raise _RefusalError if there is none."""
    numbers = [entry["number"] for entry in document["slices"]]
    for name, value in (("--from-slice", first), ("--stop-after", last)):
        if value is not None and value not in numbers:
            raise _RefusalError(f"{name} is {value}. The programme has slices {numbers[0]} to {numbers[-1]}.")
    if first is None and not air:
        left = [number for number in numbers if str(number) not in done]
        if not left:
            raise _RefusalError("All slices are done. Begin again on another fruit with --from-slice.")
        first = left[0]
    first, last = first or numbers[0], last or numbers[-1]
    if first > last:
        raise _RefusalError(
            f"Slice {first} comes after slice {last}. Choose another --from-slice or --stop-after."
        )
    return [entry for entry in document["slices"] if first <= entry["number"] <= last]


def _confirm(question: str, answer: str) -> bool:
    """Ask for confirmation; anything but the answer is a no."""
    _say(question)
    sys.stdout.write(f"Type {answer} to continue: ")
    sys.stdout.flush()
    try:
        return sys.stdin.readline().strip() == answer
    except KeyboardInterrupt:
        return False


def _play(folder: Path, entries: list, options: argparse.Namespace) -> int:
    """Cut the slices one after the other, each in a process with a connection of its own; return the exit code."""
    for entry in entries:  # everything is checked before anything moves
        module = _load_slice(folder, entry)
        module.check_robot(module.DOCUMENT, options.robot)
        motion = module.Motion(folder / entry["folder"], module.DOCUMENT, options.air)
        module.check_calibrated(module.DOCUMENT, motion, options.accept_uncalibrated)
        module.check_script(module.DOCUMENT)
    _records(folder).mkdir(exist_ok=True)
    for number, entry in enumerate(entries):
        _say(
            f"Slice {entry['number']} ({number + 1} of {len(entries)}), {1000 * entry['thickness_m']:.1f} mm"
        )
        follows = number + 1 < len(entries) and not options.air
        code = _in_a_process(options, entry, entries[number + 1] if follows else None)
        if code:
            _say(
                f"The programme stopped in slice {entry['number']}. Free the knife, bring the arm to its ready pose "
                f"(python {entry['folder']}/run_cut.py --ready), then run this script again: it goes on there."
            )
            return int(code)
        if not options.air:
            _note_done(folder, entry)
    _say("All done.")
    return 0


def _in_a_process(options: argparse.Namespace, entry: dict, following: "dict | None") -> int:
    """Run this script for one slice; Ctrl-C reaches the process that moves the arm."""
    command = [sys.executable, str(Path(HERE) / "run_slices.py"), "--execute", "--robot", options.robot]
    command += ["--host", options.host, "--one", str(entry["number"])]
    command += ["--then", str(following["number"])] if following else []
    command += ["--air"] if options.air else []
    command += ["--no-realtime"] if options.no_realtime else []
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.Popen(command, preexec_fn=_listen).wait()
    finally:
        signal.signal(signal.SIGINT, previous)


def _listen() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _play_one(folder: Path, document: dict, options: argparse.Namespace) -> int:
    """Cut one slice, then go to the start of the following one or back to the ready pose; return the exit code."""
    entries = {entry["number"]: entry for entry in document["slices"]}
    entry = entries[options.one]
    module = _load_slice(folder, entry)
    motion = module.Motion(folder / entry["folder"], module.DOCUMENT, options.air)
    if options.then is not None:
        motion.to_ready = _read_joints(
            folder / f"step_{entry['folder']}_{entries[options.then]['folder']}.csv"
        )
    name = time.strftime(f"{'air_' if options.air else ''}slice_{entry['folder']}_%Y%m%d_%H%M%S.json")
    code = module.execute(
        module.DOCUMENT,
        motion,
        options.host,
        _records(folder) / name,
        realtime=not options.no_realtime,
        confirmed=True,
    )
    return int(code)


def main() -> int:
    """Return 0 if all went well, 2 if rejected, 3 if stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--air", action="store_true", help="the motions in the air")
    parser.add_argument("--execute", action="store_true", help="move the robot")
    parser.add_argument("--robot", help="the robot at that address; must be the one of the programme")
    parser.add_argument("--host", help="address of the robot")
    parser.add_argument("--from-slice", type=int, help="first slice [default: the first that is not done]")
    parser.add_argument("--stop-after", type=int, help="last slice [default: the last of the programme]")
    parser.add_argument("--accept-uncalibrated", action="store_true", help="cut without a fitted force log")
    parser.add_argument("--no-realtime", action="store_true", help="simulated robots only")
    for name in ("--one", "--then"):  # for the processes that this script starts
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = Path(HERE)
    try:
        document = _check_files(folder)
        if options.one is not None:
            return _play_one(folder, document, options)
        entries = _chosen(
            document, _read_done(folder), options.from_slice, options.stop_after, air=options.air
        )
        _say(document["warning"])
        _say(f"{len(document['slices'])} slices of {document['fruit']}, {document['total_s']:.1f} s in all.")
        _say(document["certificate"]["verdict"])
        numbers = f"{entries[0]['number']} to {entries[-1]['number']}"
        _say(f"{'Air cuts' if options.air else 'CUTS'} of slices {numbers}.")
        if not options.execute:
            for entry in entries:
                _load_slice(folder, entry)
            _say("All checks passed. Dry run: nothing was moved.")
            return 0
        if not (options.robot and options.host):
            raise _RefusalError("--execute needs --robot and --host.")
        condition = (
            "The fruit is OFF the board."
            if options.air
            else (
                "The air cuts ran well, the fruit is in place and held, and slices that fall can't reach the arm."
            )
        )
        if not (
            _confirm(condition, "yes")
            and _confirm("Nobody is within reach; the stop button is in hand.", "move")
        ):
            raise _RefusalError("Not confirmed.")
        return _play(folder, entries, options)
    except KeyboardInterrupt:
        _say("REFUSED: Ctrl-C was pressed before anything moved.")
        return 2
    except Exception as reason:  # noqa: BLE001 -- a damaged file or a slice's refusal; nothing may move
        _say(f"REFUSED: {reason}")
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
