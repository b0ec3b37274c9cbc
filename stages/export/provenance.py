"""The chain of hashes from the raw scan to the motion: what each file says it was made from, checked on disk."""

import json
from dataclasses import dataclass
from pathlib import Path

from disect_sim.errors import InputError
from stages.runtime.artifacts import PREFIX, read_metadata
from stages.runtime.hashing import sha256_of_path, sha256_of_value

ROOT = Path(__file__).parents[2]
CODE = (
    "stages/export",
    "stages/runtime",
    "stages/shared",
    "disect_sim",
)
"""What computes an export and its certificate, and the simulator behind the predicted force."""
REQUIRED = ("clean", "tetrahedralize_half", "precut_half", "calibrate", "transport", "optimize")
"""Stages that a whole chain goes through: surface, mesh, calibration, transport, motion."""


@dataclass(frozen=True)
class Chain:
    """Everything a file was made from."""

    digests: dict[str, str]
    """Path relative to the scan's directory → sha256 of the file as it is now, sorted."""
    broken: tuple[str, ...]
    """Files that are missing or differ from what was recorded when they were used."""


def walk(scan_dir: Path, names: tuple[str, ...], *, root: str, stages: tuple[str, ...] = REQUIRED) -> Chain:
    """Follow the recorded inputs of the given files, and theirs, back to files that nothing here made.

    A chain that does not end at the raw scan, `root`, or does not go through all the stages, is broken there.
    """
    digests: dict[str, str] = {}
    broken: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        path = scan_dir / name
        if name in digests or name in broken:
            continue
        if not path.exists():
            broken.add(name)
            continue
        digests[name] = sha256_of_path(path)
        for used, recorded in _inputs(path).items():
            if not (scan_dir / used).exists() or sha256_of_path(scan_dir / used) != recorded:
                broken.add(used)
            else:
                waiting.append(used)
    passed = {name.partition("/")[0] for name in digests}
    broken.update({root, *stages} - passed)
    return Chain(dict(sorted(digests.items())), tuple(sorted(broken)))


def code_sha256() -> str:
    """Of the code that exports and certifies."""
    return sha256_of_value({name: sha256_of_path(ROOT / name) for name in CODE})


def _inputs(path: Path) -> dict[str, str]:
    if path.suffix != ".parquet":
        return {}
    recorded = read_metadata(path).get(PREFIX + "inputs_sha256")
    if recorded is None:
        raise InputError(
            f"{path} does not say what it was made from. Every table must carry the sha256 of its inputs. "
            "Run its stage again."
        )
    inputs: dict[str, str] = json.loads(recorded)
    return inputs
