"""The first cut that tells most: design it before any log, certify it, and write its files for the robot."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disect_sim.errors import InputError
from pipelines.scans.project import Project, known_scans
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file

FOLDER = "probe"
"""In the scan's folder, beside those of the stages."""
NEEDED = ("clean/vertices", "clean/faces", "precut/nodes", "precut/springs")
"""Artifacts that a first cut is made from."""

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Design:
    """First cuts of a scan's fruit with the expected material, and how sure the saving would be after each."""

    params: Any
    model: Any
    unknowns: Any
    values: Any
    """The simulator's parameters of the expected material."""
    cuts: list[Any]
    """The vertical one first."""
    least: Any
    """The cut with the least force, whose saving is asked for."""
    before: float
    """Half of the saving's 90 % interval before any log [-]."""
    bands: dict[str, float]
    """The same after the log of every cut, by its name."""

    @property
    def ranked(self) -> list[Any]:
        """The cuts, the one that tells most first."""
        return sorted(self.cuts, key=lambda cut: self.bands[cut.name])


def design(project: Project, scan: str, candidates: int, progress: Progress) -> Design:
    """Simulate first cuts, and ask what the log of each would leave unknown."""
    from disect_sim.materials import MATERIALS
    from stages.calibrate.information import (
        PlannedLog,
        covariances,
        deviation,
        expected_parameters,
        saving_slope,
    )
    from stages.calibrate.material_fit.fit import material_unknowns
    from stages.optimize.first_cuts import first_cuts
    from stages.runtime.artifacts import read_table
    from stages.runtime.params import load_params
    from stages.shared.cut.cut_mesh_tables import read_cut_mesh
    from stages.shared.cut.cutting_model import cutting_model
    from stages.shared.library.library import NINETY

    known_scans(project, [scan])
    scan_dir = project.scan_dir(scan)
    _check_meshed(scan, scan_dir)
    params = load_params(project.root / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME)
    material = read_scan_file(scan_dir).material
    mesh = read_cut_mesh(lambda name: read_table(scan_dir, name))
    model = cutting_model(mesh, MATERIALS[material], params.cut)
    unknowns = material_unknowns([mesh], material, params.calibrate, leave_out=[scan])
    values = expected_parameters(unknowns)
    cuts = first_cuts(
        model, values, params.optimize, candidates, lambda share: progress(0.2 * share, "simulate first cuts")
    )
    least = min(cuts, key=lambda cut: cut.motion.mean_n())
    slope = saving_slope(unknowns, cuts[0].sensitivity(), least.sensitivity())
    logs = [PlannedLog(cut.table(), model, unknowns, params.calibrate) for cut in cuts]
    after = covariances(
        logs, lambda done: progress(0.2 + 0.5 * done / len(logs), "ask what each log would tell")
    )
    bands = {cut.name: NINETY * deviation(slope, known) for cut, known in zip(cuts, after, strict=True)}
    return Design(params, model, unknowns, values, cuts, least, NINETY * deviation(slope), bands)


def probe(project: Project, scan: str, candidates: int, progress: Progress) -> dict[str, Any]:
    """How sure the saving is before any log, after a vertical cut and after the best first cut; where its files are."""
    found = design(project, scan, candidates, progress)
    scan_dir, vertical = project.scan_dir(scan), found.cuts[0]
    chosen, exported = _exported(scan_dir, found, progress)
    _write_picture(scan_dir, found, chosen)
    return {
        "saving": 1.0 - found.least.motion.mean_n() / vertical.motion.mean_n(),
        "saving_of": found.least.name,
        "band_before": found.before,
        "band_after_vertical": found.bands[vertical.name],
        "band_after_chosen": found.bands[chosen.name],
        "chosen": chosen.name,
        "cuts": [
            {
                "name": cut.name,
                "drawn_m": cut.drawn_m,
                "mean_force_n": cut.motion.mean_n(),
                "band": found.bands[cut.name],
            }
            for cut in found.ranked
        ],
        **exported,
    }


def _check_meshed(scan: str, scan_dir: Path) -> None:
    from stages.runtime.catalogue import ARTIFACTS

    missing = [name for name in NEEDED if not (scan_dir / ARTIFACTS[name].path).exists()]
    if missing:
        raise InputError(
            f"probe: {scan} has no {missing[0]}. A first cut is designed on the scan's cut mesh. Run "
            f"`scan2cut run {scan} --target precut` first."
        )


def _exported(scan_dir: Path, found: Design, progress: Progress) -> tuple[Any, dict[str, Any]]:
    """The first of the ranked cuts that the certificate accepts, and its files in place; else the best, refused."""
    from stages.export.parting import parting_of
    from stages.export.provenance import walk
    from stages.export.stage import export
    from stages.optimize.first_cuts import to_execute
    from stages.replay.stage import frame_table, record, spring_table
    from stages.runtime.artifacts import read_table
    from stages.runtime.catalogue import ARTIFACTS

    identity, ranked = read_scan_file(scan_dir), found.ranked
    model, values, params = found.model, found.values, found.params
    body = (read_table(scan_dir, NEEDED[0]), read_table(scan_dir, NEEDED[1]))
    chain = walk(
        scan_dir,
        tuple(ARTIFACTS[name].path for name in NEEDED),
        root=identity.scan,
        stages=("clean", "tetrahedralize", "precut"),
    )
    scratch = scan_dir / f".scratch-{FOLDER}"
    shutil.rmtree(scratch, ignore_errors=True)
    tried = []
    for number, cut in enumerate(ranked):
        progress(0.7 + 0.3 * number / len(ranked), f"certify {cut.name}")
        motion = to_execute(cut, model, values, params.optimize)
        recording = record(model.mesh, model.material, motion, values, params.replay)
        parting = parting_of(frame_table(recording), spring_table(recording))
        place = scratch / str(number)
        place.mkdir(parents=True)
        motion.write_parquet(place / "motion.parquet")
        made = export(
            place,
            motion,
            body,
            parting,
            chain,
            params.export,
            knife=params.cut.knife_label,
            scan_id=identity.id,
        )
        tried.append((cut, place, made))
        if made.certificate.certified:
            break
    cut, place, made = tried[-1] if tried[-1][2].certificate.certified else tried[0]
    folder = scan_dir / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    place.replace(folder)
    shutil.rmtree(scratch)
    return cut, {
        "certified": made.certificate.certified,
        "verdict": made.certificate.verdict,
        "folder": str(folder / made.folder.name),
    }


def _write_picture(scan_dir: Path, found: Design, chosen: Any) -> None:
    from stages.optimize.first_cuts_picture import first_cuts_picture
    from stages.runtime.atomic_file import write_bytes_atomic
    from stages.runtime.stage_io import encode_png

    png = encode_png(first_cuts_picture(found.model.mesh, chosen, found.bands, found.before))
    write_bytes_atomic(scan_dir / FOLDER / "probe.png", png)
