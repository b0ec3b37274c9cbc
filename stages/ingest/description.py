"""What DVC and the flow need to know of the stage ingest."""

from stages.ingest.artifacts import ARTIFACTS
from stages.ingest.params import IngestParams
from stages.runtime.describe import Stage

STAGE = Stage(
    name="ingest",
    does="robot log → force on the knife, tared, with its uncertainty; without a log an empty table",
    params=IngestParams,
    artifacts=ARTIFACTS,
    reads=(),
    key_figure="peak_force_n",
    timeout_s=600,
    files=(
        "force_log",
        "air_runs",
        "further_logs",
    ),
)
