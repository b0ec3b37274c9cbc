"""The certificate: every check on the files as read back, and verification of an exported folder."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.export.checks import AGAIN, Check, holds, not_verified
from stages.export.demand import Demand, demand_of_files, says_what_is_so
from stages.export.export_files import (
    DOCUMENT,
    REASON,
    SIBLINGS,
    ExportFiles,
    foreign_entries,
    read_document,
    read_export,
)
from stages.export.file_checks import frames, hashes, rest_and_copies, structure
from stages.export.load_checks import collisions, load_figures, loads
from stages.export.motion_checks import kinematics, limits
from stages.export.moves import move_checks
from stages.export.package import claims
from stages.export.place_checks import arm_is_clear, cutting, space, tool_fits
from stages.export.signature import SIGNATURE, signature_checks
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
    for group in (*_ON_NUMBERS[:-1], claims, hashes, _mujoco, _ON_NUMBERS[-1]):
        checks += group(files, demand)
    return Certificate(tuple(checks), load_figures(files, demand), demand.force_calibrated)


def _mujoco(files: ExportFiles, demand: Demand) -> list[Check]:
    if not demand.params.mujoco:
        return [not_verified(8, "independent dynamics", "export.mujoco is off")]
    from stages.export.mujoco_check import mujoco_checks

    return mujoco_checks(files, demand)


# Verification of an exported folder anywhere: all checks again, and the hash of the certificate


_CHAIN = "sha256 of the upstream files"
_RENEW = "Export again with 'scan2cut run SCAN'"


def verify(folder: Path, public_key: Path | None = None) -> Certificate:
    """Run every check of the certificate on the folder as it is now, without the scan it was made from.

    Nothing that the folder says about itself is believed: verdict, checks and loads are computed again and compared.
    With a public key, given or in the environment, the export must be signed by it.
    Raises InputError if the folder is not an export. Upstream files are not available and reported as not checked.
    """
    if not ((folder / DOCUMENT).exists() or (folder / DOCUMENT).is_symlink()):
        raise InputError(
            f"{folder} has no {DOCUMENT}. It must be an exported cut. Give the folder "
            "data/scans/<id>/export/cut/certified, or a copy of it."
        )
    signature_checks({}, {}, public_key)  # rejects an unusable key
    foreign = foreign_entries(folder, SIBLINGS | {REASON})
    if foreign:
        remedy = "Only regular files of the export may be there, because Python imports what lies beside a run script"
        return Certificate(
            (holds(7, _REGULAR, False, "; ".join(foreign)[:500], remedy=f"{remedy}. {_RENEW}"),), {}
        )
    try:
        files = read_export(folder)
        certificate = certify(folder, demand_of_files(folder, files.document))
        document = read_document(folder / DOCUMENT)
        sealed = document.pop("certificate", None)
        intact = isinstance(sealed, dict) and sha256_of_value(document) == sealed.get("content_sha256")
    except Exception as error:  # noqa: BLE001 -- edited files can raise anything
        note = " ".join(str(error).split())[:300]
        if not isinstance(error, ValueError | InputError):
            note = f"{DOCUMENT} or a file beside it has unusable content ({type(error).__name__}: {note})"
        return Certificate((holds(1, "files readable", False, note, remedy=_RENEW),), {})
    # Where a check fails, the stated certificate differs anyway.
    wrong = _untrue(sealed if isinstance(sealed, dict) else {}, certificate) if certificate.certified else []
    checks = [
        not_verified(7, _CHAIN, "the scan is not here") if check.name == _CHAIN else check
        for check in certificate.checks
    ]
    checks += [
        holds(
            7,
            "certificate is valid and belongs to this document",
            intact,
            "its sha256 is that of the rest of cut.json"
            if intact
            else "cut.json was changed, or never certified",
            remedy="Export again",
        ),
        holds(
            7,
            "certificate in cut.json agrees with the checks repeated here",
            not wrong,
            f"differs: {', '.join(wrong)}" if wrong else "verdict, every check, loads",
            remedy="Export again",
        ),
        *signature_checks(sealed if isinstance(sealed, dict) else {}, document, public_key),
    ]
    return Certificate(tuple(checks), certificate.figures, certificate.force_calibrated)


_REGULAR = "every file is listed and regular"
_SHARE = 1e-3
"""Permitted difference of a value from the repeated check's, as a fraction of its limit: rounding, nothing more."""


def _untrue(sealed: dict[str, Any], repeated: Certificate) -> list[str]:
    """Return what a certificate states differently from the repeated checks; the document's hash does not cover it."""
    expected = repeated.plain()
    wrong = [key for key in ("certified", "force_calibrated", "verdict") if sealed.get(key) != expected[key]]
    if sealed.keys() - {SIGNATURE} != expected.keys() | {"content_sha256"}:
        wrong.append("entries")
    if not _same(sealed.get("loads"), repeated.figures):
        wrong.append("loads")
    stated = sealed.get("checks")
    if not isinstance(stated, list) or len(stated) != len(expected["checks"]):
        return [*wrong, "number of checks"]
    return wrong + [
        b["name"] for a, b in zip(stated, expected["checks"], strict=True) if not _same_check(a, b)
    ]


def _same_check(stated: object, expected: dict[str, Any]) -> bool:
    if not isinstance(stated, dict) or stated.keys() != expected.keys():
        return False
    limit = expected["limit"]
    room = _SHARE * abs(limit) if isinstance(limit, float | int) else 0.0
    for key, value in expected.items():
        if key in ("value", "margin") and isinstance(value, float):
            if (
                type(stated[key]) is not float
                or not abs(stated[key] - value) <= room + 1e-6 * abs(value) + _ROUNDING
            ):
                return False
        elif type(stated[key]) is not type(value) or stated[key] != value:
            return False
    return True


_ROUNDING = 1e-9


def _same(stated: object, figures: dict[str, float]) -> bool:
    """Compare the loads, which the operator relies on."""
    if not isinstance(stated, dict) or stated.keys() != figures.keys():
        return False
    return all(
        isinstance(stated[name], int | float)
        and math.isclose(stated[name], value, rel_tol=1e-6, abs_tol=1e-9)
        for name, value in figures.items()
    )
