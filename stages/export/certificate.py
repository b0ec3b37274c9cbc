"""The certificate: every check on the files as they were read back."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.export.cell_checks import arm_is_clear, tool_fits
from stages.export.checks import AGAIN, Check, holds, not_verified
from stages.export.collision import collisions
from stages.export.cut_checks import cutting
from stages.export.demand import Demand
from stages.export.document import says_what_is_so
from stages.export.export_files import ExportFiles, read_export
from stages.export.file_checks import frames, hashes, rest_and_copies, structure
from stages.export.load_checks import load_figures, loads
from stages.export.motion_checks import kinematics, limits
from stages.export.moves import move_checks
from stages.export.space_checks import space


@dataclass(frozen=True)
class Certificate:
    """All checks and what follows from them."""

    checks: tuple[Check, ...]
    figures: dict[str, Any]
    """Loads to expect and thresholds to set; empty if the files can't be read."""

    @property
    def certified(self) -> bool:
        """No check failed; those not run are named in the verdict."""
        return all(check.passed is not False for check in self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """What went wrong."""
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def verdict(self) -> str:
        """One sentence."""
        skipped = [check.name for check in self.checks if check.passed is None]
        tail = f" Not run: {', '.join(skipped)}." if skipped else ""
        if self.certified:
            return f"Certified: all {len(self.checks) - len(skipped)} checks passed.{tail}"
        count = f"{len(self.failed)} of {len(self.checks)} checks failed"
        return f"Refused: {count}; first {self.failed[0].sentence()}.{tail}"

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "certified": self.certified,
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


ON_NUMBERS: tuple[Callable[[ExportFiles, Demand], list[Check]], ...] = (
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
"""Groups of checks that look at what the files say; those of hashes and the replay come on top."""


LONGEST = (arm_is_clear, collisions, loads, move_checks, kinematics)


def first_failure(files: ExportFiles, demand: Demand) -> Check | None:
    """A check on numbers that fails, without looking at the rest; None if all pass. The quick groups come first."""
    quick = [group for group in ON_NUMBERS if group not in LONGEST]
    for group in (structure, *quick, *LONGEST):
        for check in group(files, demand):
            if check.passed is False:
                return check
    return None


def certify(folder: Path, demand: Demand) -> Certificate:
    """Read the folder and hold it against the demand."""
    try:
        files = read_export(folder)
    except ValueError as error:
        return Certificate((holds(1, "files readable", False, str(error), remedy=AGAIN),), {})
    found = [
        holds(1, "files readable", True, "schema and version as expected", remedy=AGAIN),
        *structure(files, demand),
    ]
    if any(check.passed is False for check in found):
        return Certificate((*found, not_verified(2, "checks 2 to 9", "the joint file is not sound")), {})
    for group in (*ON_NUMBERS[:-1], hashes, _replay, ON_NUMBERS[-1]):
        found += group(files, demand)
    return Certificate(tuple(found), load_figures(files, demand))


def _replay(files: ExportFiles, demand: Demand) -> list[Check]:
    if not demand.params.replay:
        return [not_verified(8, "independent replay", "export.replay is off")]
    from stages.export.replay import replay_checks

    return replay_checks(files, demand)
