"""The certificate: every check on the files as read back, and verification of an exported folder."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from stages.export.checks import AGAIN, Check, holds, not_verified
from stages.export.demand import Demand, demand_of_files, says_what_is_so
from stages.export.export_files import DOCUMENT, ExportFiles, read_export
from stages.export.file_checks import frames, hashes, rest_and_copies, structure
from stages.export.load_checks import collisions, load_figures, loads
from stages.export.motion_checks import kinematics, limits
from stages.export.moves import move_checks
from stages.export.place_checks import arm_is_clear, cutting, space, tool_fits
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_value

UNCALIBRATED = "Geometry certified, force uncalibrated"
_WITHOUT_LOG = (
    "There is no force log of this fruit: the predicted force, the saving and the stop force are estimates from the "
    "library, and a real apple needed 1.9 times its estimate. Make a probe cut and run again with --log, or confirm "
    "with --accept-uncalibrated."
)


@dataclass(frozen=True)
class Certificate:
    """All checks and the resulting loads and thresholds."""

    checks: tuple[Check, ...]
    figures: dict[str, Any]
    """Expected loads and thresholds to set; empty if the files can't be read."""
    force_calibrated: bool = True
    """Whether the predicted force comes from a fitted force log of this fruit."""

    @property
    def certified(self) -> bool:
        """True if no check failed; checks that were not run are named in the verdict."""
        return all(check.passed is not False for check in self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """Failed checks."""
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def verdict(self) -> str:
        """Verdict in one line."""
        skipped = [check.name for check in self.checks if check.passed is None]
        tail = f" Not run: {', '.join(skipped)}." if skipped else ""
        if self.certified:
            passed = f"all {len(self.checks) - len(skipped)} checks passed.{tail}"
            return (
                f"Certified: {passed}"
                if self.force_calibrated
                else f"{UNCALIBRATED}: {passed} {_WITHOUT_LOG}"
            )
        count = f"{len(self.failed)} of {len(self.checks)} checks failed"
        return f"Refused: {count}; first {self.failed[0].sentence()}.{tail}"

    def plain(self) -> dict[str, Any]:
        """Return a JSON-serialisable form."""
        return {
            "certified": self.certified,
            "force_calibrated": self.force_calibrated,
            "verdict": self.verdict,
            "checks": [check.plain() for check in self.checks],
            "loads": self.figures,
        }


def _variant_limits(files: ExportFiles, demand: Demand) -> list[Check]:
    return [
        check for variant in (files.cut, files.air) for check in limits(variant.name, variant.joints, demand)
    ]


def _tool_fits(_files: ExportFiles, demand: Demand) -> list[Check]:
    return tool_fits(demand)


_ON_NUMBERS: tuple[Callable[[ExportFiles, Demand], list[Check]], ...] = (
    rest_and_copies,
    _variant_limits,
    kinematics,
    move_checks,
    space,
    _tool_fits,
    arm_is_clear,
    loads,
    collisions,
    frames,
    says_what_is_so,
    cutting,
)
"""Groups of checks on the content of the files; those of hashes and MuJoCo are added."""


_LONGEST = (arm_is_clear, collisions, loads, move_checks, kinematics)


def first_failure(files: ExportFiles, demand: Demand) -> Check | None:
    """Return a failed numerical check without running the rest, None if all pass. Fast groups run first."""
    quick = [group for group in _ON_NUMBERS if group not in _LONGEST]
    for group in (structure, *quick, *_LONGEST):
        for check in group(files, demand):
            if check.passed is False:
                return check
    return None


def certify(folder: Path, demand: Demand) -> Certificate:
    """Read the folder and check it against the demand."""
    try:
        files = read_export(folder)
    except ValueError as error:
        return Certificate((holds(1, "files readable", False, str(error), remedy=AGAIN),), {})
    checks = [
        holds(1, "files readable", True, "schema and version as expected", remedy=AGAIN),
        *structure(files, demand),
    ]
    if any(check.passed is False for check in checks):
        return Certificate((*checks, not_verified(2, "checks 2 to 9", "the joint file is invalid")), {})
    for group in (*_ON_NUMBERS[:-1], hashes, _mujoco, _ON_NUMBERS[-1]):
        checks += group(files, demand)
    return Certificate(tuple(checks), load_figures(files, demand), demand.force_calibrated)


def _mujoco(files: ExportFiles, demand: Demand) -> list[Check]:
    if not demand.params.mujoco:
        return [not_verified(8, "independent dynamics", "export.mujoco is off")]
    from stages.export.mujoco_check import mujoco_checks

    return mujoco_checks(files, demand)


# Verification of an exported folder anywhere: all checks again, and the hash of the certificate


_CHAIN = "sha256 of the upstream files"
_UNREADABLE = (
    InputError,
    ValidationError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    StopIteration,
    OSError,
    pl.exceptions.PolarsError,
)
"""Exceptions that modified files can raise."""


def verify(folder: Path) -> Certificate:
    """Run every check of the certificate on the folder as it is now, without the scan it was made from.

    Raises InputError if the folder is not an export. Upstream files are not available and reported as not checked.
    """
    if not (folder / DOCUMENT).is_file():
        raise InputError(
            f"{folder} has no {DOCUMENT}. It must be an exported cut. Give the folder "
            "data/scans/<id>/export/cut/certified, or a copy of it."
        )
    try:
        files = read_export(folder)
        certificate = certify(folder, demand_of_files(folder, files.document))
    except _UNREADABLE as error:
        note = " ".join(str(error).split())[:300]
        return Certificate(
            (holds(1, "files readable", False, note, remedy="Export again with 'scan2cut run SCAN'"),), {}
        )
    document = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))
    sealed = document.pop("certificate", None)
    sealed = sealed if isinstance(sealed, dict) else {}
    intact = sha256_of_value(document) == sealed.get("content_sha256")
    checks = [
        not_verified(7, _CHAIN, "the scan is not here") if check.name == _CHAIN else check
        for check in certificate.checks
    ]
    checks.append(
        holds(
            7,
            "certificate is valid and belongs to this document",
            bool(intact and sealed.get("certified") is True),
            "its sha256 is that of the rest of cut.json"
            if intact
            else "cut.json was changed, or never certified",
            remedy="Export again",
        )
    )
    checks.append(
        holds(
            7,
            "loads in the certificate agree with the files",
            _same(sealed.get("loads"), certificate.figures),
            "peak force, deflection and stiffness",
            remedy="Export again",
        )
    )
    return Certificate(tuple(checks), certificate.figures, certificate.force_calibrated)


def _same(stated: object, figures: dict[str, float]) -> bool:
    """Compare the loads, which the operator relies on; the hash of the document does not cover them."""
    if not isinstance(stated, dict) or stated.keys() != figures.keys():
        return False
    return all(
        isinstance(stated[name], int | float)
        and math.isclose(stated[name], value, rel_tol=1e-6, abs_tol=1e-9)
        for name, value in figures.items()
    )
