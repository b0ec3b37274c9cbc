"""Predict another log of a registered scan: ingest it as the scan's own was, simulate, write the curves."""

from functools import partial
from pathlib import Path
from typing import Any

from pipelines.scans import air_runs
from pipelines.scans.project import Project, known_scans
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file

FOLDER = "predictions"
"""In the scan's folder, beside those of the stages."""


def predict_log(project: Project, scan: str, log: Path, air: list[Path] | None = None) -> dict[str, Any]:
    """The figures of the prediction, and where its table and picture are."""
    from stages.calibrate.prediction import predict
    from stages.calibrate.prediction_picture import prediction_picture
    from stages.calibrate.recorded_cut import own_logs
    from stages.ingest.log_file import read_log
    from stages.ingest.stage import force_table, ingest
    from stages.runtime.artifacts import read_notes, read_table
    from stages.runtime.curves import write_curves
    from stages.runtime.hashing import sha256_of_file
    from stages.runtime.params import load_params
    from stages.runtime.stage_io import encode_png

    known_scans(project, [scan])
    scan_dir = project.scan_dir(scan)
    params = load_params(project.root / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME)
    airs = air_runs.beside(log) if air is None else air
    air_runs.check(airs)
    runs = {path.name: read_log(path, params.ingest) for path in airs}
    table = force_table(ingest(read_log(log, params.ingest), params.ingest, air_runs=runs, source=log.name))
    found = predict(
        lambda name: read_table(scan_dir, name),
        read_scan_file(scan_dir).material,
        params.calibrate,
        table,
        own=[scan, sha256_of_file(log), *own_logs(partial(read_notes, scan_dir))],
    )
    folder = scan_dir / FOLDER / f"{log.parent.name}_{log.stem}"
    return {**found.figures(), **write_curves(folder, found.table(), encode_png(prediction_picture(found)))}
