"""Predict another log of a registered scan: ingest it as the scan's own was, simulate, write the curves."""

import io
from pathlib import Path
from typing import Any

from pipelines.scans.project import Project, known_scans
from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file

FOLDER = "predictions"
"""In the scan's folder, beside those of the stages."""


def predict_log(project: Project, scan: str, log: Path, air: list[Path] | None = None) -> dict[str, Any]:
    """The figures of the prediction, and where its table and picture are."""
    from stages.calibrate.prediction import predict
    from stages.calibrate.prediction_picture import prediction_picture
    from stages.ingest.log_file import read_log
    from stages.ingest.stage import force_table, ingest
    from stages.runtime.artifacts import read_table
    from stages.runtime.params import load_params

    known_scans(project, [scan])
    scan_dir = project.scan_dir(scan)
    params = load_params(project.root / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME)
    airs = sorted(log.parent.glob("air*")) if air is None else air
    runs = {path.name: read_log(path, params.ingest) for path in airs}
    table = force_table(ingest(read_log(log, params.ingest), params.ingest, air_runs=runs, source=log.name))
    found = predict(
        lambda name: read_table(scan_dir, name), read_scan_file(scan_dir).material, params.calibrate, table
    )
    place = scan_dir / FOLDER / f"{log.parent.name}_{log.stem}"
    place.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    found.table().write_csv(buffer)
    write_bytes_atomic(place / "force.csv", buffer.getvalue())
    write_bytes_atomic(place / "force.png", prediction_picture(found))
    return {
        **found.figures(),
        "table": str(place / "force.csv"),
        "picture": str(place / "force.png"),
    }
