"""Adding a scan's calibrated cut to the library of its material, from which the next fit learns what to expect."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from disect_sim.errors import InputError
from pipelines.scans.project import Project, known_scans
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file

FOLDER = Path("stages/shared/library/cuts")
"""Of the library, in the project."""
WORST_NMAE = 0.15
"""A fit that misses its own log by more says nothing about the material."""


def add_cut(project: Project, scan: str) -> dict[str, Any]:
    """Write the scan's entry, in place of an earlier one of the same scan, and return it."""
    from stages.calibrate.material_fit.posterior import what_the_log_says
    from stages.calibrate.recorded_cut import own_logs
    from stages.runtime.artifacts import read_metrics, read_notes, read_table
    from stages.runtime.atomic_file import write_bytes_atomic
    from stages.runtime.params import load_params

    known_scans(project, [scan])
    scan_dir = project.scan_dir(scan)
    identity = read_scan_file(scan_dir)
    figures_file = scan_dir / "calibrate" / "metrics.json"
    if identity.log is None or not figures_file.is_file():
        raise InputError(
            f"{scan} has no calibrated cut. An entry of the library is what a log says of a material. Run the scan "
            "with --log first."
        )
    figures = read_metrics(figures_file)
    params = load_params(project.root / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME)
    posterior = read_table(scan_dir, "calibrate/posterior")
    if not len(posterior):
        raise InputError(
            f"{scan} was calibrated spring by spring. The library holds materials. Run it with calibrate.fit=material."
        )
    if not figures["nmae"] <= WORST_NMAE:
        raise InputError(
            f"{scan}: the fit misses its own log by {100 * figures['nmae']:.1f} %. An entry of the library needs "
            f"{100 * WORST_NMAE:.0f} % or less. Look at its report first."
        )
    entry = {
        "name": scan,
        "source": f"calibrated on {identity.log} by scan2cut",
        "logs": own_logs(partial(read_notes, scan_dir)),
        "damage_law": params.cut.damage_law,
        "boundary": params.cut.boundary,
        "knife": params.cut.knife_label,
        "nmae": round(figures["nmae"], 4),
        "values": what_the_log_says(posterior),
    }
    path = project.root / FOLDER / f"{identity.material}.json"
    others = [cut for cut in json.loads(path.read_text(encoding="utf-8"))["cuts"] if cut["name"] != scan]
    write_bytes_atomic(path, library_text([*others, entry]).encode())
    return {"material": identity.material, "cuts": len(others) + 1, "file": str(path), "entry": entry}


def library_text(cuts: list[dict[str, Any]]) -> str:
    """The library's file, one line per value, so that a change reads well in git."""
    return json.dumps({"cuts": cuts}, indent=2, ensure_ascii=False) + "\n"
