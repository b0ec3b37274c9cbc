"""Jobs of a stage in processes: the simulator's own helper, which every stage shares."""

from disect_sim.processes import Workers, report_to_parent, run_parallel

__all__ = ["Workers", "report_to_parent", "run_parallel"]
