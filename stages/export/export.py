"""export: the optimised motion as files a robot arm can execute, with a certificate or the reasons for its refusal."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from stages.export.cell import cell_of
from stages.export.certificate import UNCALIBRATED, Certificate, certify
from stages.export.demand import Demand, Parting, cut_of, fruit_of, parting_of, with_moment
from stages.export.description import ExportParams
from stages.export.export_files import REASON, RUN_SCRIPTS, Chain, walk
from stages.export.export_picture import export_picture
from stages.export.package import write_certificate, write_package
from stages.export.signature import signing_key
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.files import write_bytes_atomic
from stages.runtime.stage_io import StageIO
from stages.shared.cut_description import INVERTED, RIGID
from stages.shared.robots.robot import load_robot

_MOTION = "optimize/motion"
_BODY = ("halve/vertices", "halve/faces")
"""Surface of the body that is cut, in the cutting frame."""
_SIMULATED = ("replay/frames", "replay/springs")
"""Simulated cut of the motion."""
_FIT = "calibrate/profile"
"""Empty where no force log was fitted."""
_CERTIFIED, _REFUSED, _UNCHECKED = "certified", "refused", ".unchecked"
"""Folders of an export; exactly one of the first two remains."""


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    folder: Path
    demand: Demand
    certificate: Certificate


def export(
    parent: Path,
    motion: pl.DataFrame,
    body: tuple[pl.DataFrame, pl.DataFrame],
    parting: Parting,
    chain: Chain,
    params: ExportParams,
    *,
    knife: str,
    scan_id: str,
    force_calibrated: bool,
    saving: str = "",
) -> Exported:
    """Write the export below `parent`, read it back, certify it, and leave it in `certified` or `refused`.

    The knife is the one that the motion was optimised for; `saving` is stated in the files, not verified. Raises
    InputError if the motion is not at 1 kHz, misses the body or is out of the robot's reach.
    """
    demand = _demand_of(motion, body, parting, chain, params, knife=knife, force_calibrated=force_calibrated)
    unchecked = parent / _UNCHECKED
    unchecked.mkdir(parents=True)
    document = write_package(unchecked, demand, scan_id=scan_id, saving=saving)
    certificate = certify(unchecked, demand)
    folder = parent / (_CERTIFIED if certificate.certified else _REFUSED)
    if not certificate.certified:
        for name in RUN_SCRIPTS:
            (unchecked / name).unlink()
        write_bytes_atomic(unchecked / REASON, _reason(certificate).encode())
    write_certificate(unchecked, document, certificate)
    os.replace(unchecked, folder)
    return Exported(folder, demand, certificate)


def _demand_of(
    motion: pl.DataFrame,
    body: tuple[pl.DataFrame, pl.DataFrame],
    parting: Parting,
    chain: Chain,
    params: ExportParams,
    *,
    knife: str,
    force_calibrated: bool = True,
) -> Demand:
    """Return the demand the export is checked against."""
    vertices, faces = body
    cell, fruit = cell_of(params), fruit_of(vertices["position_m"].to_numpy(), faces["vertices"].to_numpy())
    return Demand(
        robot=load_robot(params.arm.robot),
        cell=cell,
        params=params,
        cut=with_moment(cut_of(motion), fruit, cell.blade_length_m),
        knife_of_motion=knife,
        fruit=fruit,
        parting=parting,
        provenance=chain.digests,
        broken_links=chain.broken,
        force_calibrated=force_calibrated,
    )


def _reason(certificate: Certificate) -> str:
    """Return the text of REASON.txt."""
    lines = [
        "NOT CERTIFIED. Do not run these files on a robot. The run script was left out.",
        "",
        certificate.verdict,
        "",
        "Failed:",
        *(f"  {check.sentence()}" for check in certificate.failed),
    ]
    return "\n".join(lines) + "\n"


def _outcome(certificate: Certificate) -> str:
    if not certificate.certified:
        return _REFUSED
    return _CERTIFIED if certificate.force_calibrated else UNCALIBRATED.lower()


def metrics(exported: Exported, path: str) -> dict[str, Any]:
    """Return the artifact export/metrics."""
    certificate = exported.certificate
    measured = {check.name: check for check in certificate.checks if check.margin is not None}

    def share_left(word: str) -> float | None:
        matching = [c for name, c in measured.items() if name.endswith(word)]
        shares = [float(c.margin or 0.0) / float(c.limit) for c in matching]
        return min(shares) if shares else None

    def margin(name: str) -> float | None:
        return measured[name].margin if name in measured else None

    return {
        "certified": certificate.certified,
        "force_calibrated": certificate.force_calibrated,
        "outcome": _outcome(certificate),
        "verdict": certificate.verdict,
        "path": path,
        "checks": len(certificate.checks),
        "failed": [check.sentence() for check in certificate.failed],
        "joint_speed_margin_fraction": share_left(": joint speed"),
        "joint_acceleration_margin_fraction": share_left(": joint acceleration"),
        "joint_jerk_margin_fraction": share_left(": joint jerk"),
        "knife_speed_margin_fraction": share_left(": knife speed"),
        "torque_margin_fraction": share_left("torque with the cutting force"),
        "board_margin_m": margin("height of the whole edge above the board"),
        "blade_margin_m": margin("blade beyond the fruit at both ends"),
        "fixture_margin_m": margin("distance of the fixture from the fruit"),
        "cut_fraction": exported.demand.parting.cut_fraction,
        "inverted_tets": exported.demand.parting.inverted_tets,
        "deflection_m": certificate.figures.get("deflection_m"),
        "end_lift_m": certificate.figures.get("end_lift_m"),
        "peak_force_n": certificate.figures.get("peak_force_n"),
    }


def run(io: StageIO, params: ExportParams) -> dict[str, Any]:
    """Read motion and body, export, certify, draw."""
    signing_key()  # rejects an unusable key before anything is computed
    io.progress(0.0, "read the motion")
    motion, body = io.read(_MOTION), (io.read(_BODY[0]), io.read(_BODY[1]))
    simulated = io.notes(_SIMULATED[0])
    inverted, rigid = int(simulated.get(INVERTED, "0")), simulated.get(RIGID, "[]")
    parting = parting_of(io.read(_SIMULATED[0]), io.read(_SIMULATED[1]), inverted, rigid)
    used = (_MOTION, *_BODY, *_SIMULATED)
    chain = walk(io.scan_dir, tuple(ARTIFACTS[name].path for name in used), root=io.scan.scan)
    io.progress(0.1, "solve, write and certify")
    notes = io.notes(_MOTION)
    folder = io.folder("export/cut")
    exported = export(
        folder,
        motion,
        body,
        parting,
        chain,
        params,
        knife=notes.get("knife", "not stated"),
        scan_id=io.scan.id,
        saving=notes.get("saving", ""),
        force_calibrated=not io.read(_FIT).is_empty(),
    )
    io.progress(0.8, "draw the picture")
    io.write_png("export/preview", export_picture(exported.folder, exported.demand, exported.certificate))
    io.progress(1.0, exported.certificate.verdict)
    shown = Path("data", "scans", io.scan.id, ARTIFACTS["export/cut"].path, exported.folder.name)
    return metrics(exported, shown.as_posix())
