"""Jobs of a stage in processes: the simulator's own helper, which every stage shares."""

import os

from disect_sim.processes import Workers, cores_given, report_to_parent, run_parallel

__all__ = ["Workers", "report_to_parent", "run_parallel", "stage_workers"]

SHARE_VARIABLE = "OMP_NUM_THREADS"
"""Where several scans run at once, their share of the cores; a person may set it too."""


def stage_workers(processes: int) -> Workers:
    """So many processes; 0: one per core that the stage is given, at most SHARE_VARIABLE if that is a number."""
    share = os.environ.get(SHARE_VARIABLE, "")
    most = int(share) if share.isdigit() and int(share) > 0 else cores_given()
    return Workers(processes or min(most, cores_given()))
