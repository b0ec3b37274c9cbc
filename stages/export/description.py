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
)
"""Stages between the raw scan and the motion: the certificate names what each of them read and wrote."""

STAGE = Stage(
    name="export",
    does="motion → waypoints, joint trajectories and a certificate, or the reason against it",
    params=ExportParams,
    artifacts=ARTIFACTS,
    reads=("optimize/motion", "halve/vertices", "halve/faces", *(f"{stage}/provenance" for stage in CHAIN)),
    key_figure="outcome",
    timeout_s=1800,
)
