"""The chain of hashes from the raw scan to the motion: what each stage says it read and wrote, checked on disk."""

from dataclasses import dataclass
from pathlib import Path

from disect_sim.errors import InputError
from stages.runtime.hashing import sha256_of_path, sha256_of_value
from stages.runtime.provenance import Provenance, read_provenance

ROOT = Path(__file__).parents[2]
CODE = ("stages/export", "stages/shared/robots", "stages/shared/kinematics.py")
"""What computes an export and its certificate. The code behind the motion is named in optimize's provenance."""
REQUIRED = ("clean", "tetrahedralize_half", "precut_half", "calibrate", "transport", "optimize")
"""Stages that a whole chain goes through: surface, mesh, calibration, transport, motion."""


@dataclass(frozen=True)
class Chain:
    """Everything a file was made from."""

    digests: dict[str, str]
    """Path relative to the scan's directory → sha256 of the file as it is now, sorted."""
    broken: tuple[str, ...]
    """Files that are missing or differ from what was recorded when they were written or used."""


def walk(scan_dir: Path, names: tuple[str, ...], *, root: str, stages: tuple[str, ...] = REQUIRED) -> Chain:
    """Follow the recorded inputs of the given files, and theirs, back to files that nothing here made.

    A chain that does not end at the raw scan, `root`, or does not go through all the stages, is broken there.
    """
    digests: dict[str, str] = {}
    broken: set[str] = set()
    records: dict[str, Provenance] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in digests or name in broken:
            continue
        if not (scan_dir / name).exists():
            broken.add(name)
            continue
        digests[name] = sha256_of_path(scan_dir / name)
        stage, _, file = name.partition("/")
        if not file:
            continue
        if stage not in records:
            try:
                records[stage] = read_provenance(scan_dir, stage)
            except InputError:
                broken.add(name)
                continue
        if records[stage].outputs.get(name) != digests[name]:
            broken.add(name)
        for used, recorded in records[stage].inputs.items():
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
