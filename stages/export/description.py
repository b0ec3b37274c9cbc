"""What DVC and the flow need to know of the stage export."""

from stages.export.artifacts import ARTIFACTS
from stages.export.params import ExportParams
from stages.runtime.describe import Stage

CHAIN = (
    "clean",
    "ingest",
    "tetrahedralize",
    "precut",
    "calibrate",
    "halve",
    "tetrahedralize_half",
    "precut_half",
    "transport",
    "optimize",
    "replay",
)
"""Stages from the raw scan to the motion and its simulation: the certificate names what each read and wrote."""

STAGE = Stage(
    name="export",
    does="motion → waypoints, joint trajectories and a certificate, or the reason against it",
    params=ExportParams,
    artifacts=ARTIFACTS,
    reads=(
        "optimize/motion",
        "halve/vertices",
        "halve/faces",
        "replay/frames",
        "replay/springs",
        *(f"{stage}/provenance" for stage in CHAIN),
    ),
    key_figure="outcome",
    timeout_s=1800,
)
