"""Iterations of the second cut: python -m lab.bench.simulator_boundaries data/scans/ID [BOUNDARY ...]

Of a scan that has got as far as transport: a vertical and a sawing cut (0.1 m/s at 12 rad/s) under every boundary, or
those named, with gradient; a row is printed as soon as it is there. Iterations are the same every time; CPU seconds are
not: about 30 in all.
"""

import os
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from disect_sim import MATERIALS, build_model, simulate
from disect_sim.model import BOUNDARIES
from lab.bench.simulator_scene import simulate_tiny
from stages.optimize.constraints import passage_of
from stages.optimize.slicing_cut import AMPLITUDE_M_S, FREQUENCY_RAD_S, SlicingCut
from stages.runtime.artifacts import read_table
from stages.runtime.params import load_params
from stages.runtime.scan_file import read_scan_file
from stages.shared.cut import read_cut_mesh, read_second_cut_values

ROOT = Path(__file__).parents[2]
SPEED_M_S, RATE_RAD_S = 0.1, 12.0
"""Of the sawing cut."""
ROW = "{:>8}  {:>8}  {:>5}  {:>6}  {:>6}  {:>7}  {:>7}  {:>8}  {:>9}"


def main() -> None:
    """Print the table."""
    scan_dir = Path(sys.argv[1])
    read = partial(read_table, scan_dir)
    params = load_params(ROOT / "params.yaml").optimize
    mesh, values = read_cut_mesh(read, "precut_half"), read_second_cut_values(read)
    material = MATERIALS[read_scan_file(scan_dir).material]
    print(f"{len(mesh.tets):,} tets, edge law; CPU s, N; load {os.getloadavg()[0]:.1f}")
    print(
        ROW.format("boundary", "cut", "steps", "Newton", "CG", "factors", "forward", "gradient", "force"),
        flush=True,
    )
    simulate_tiny()
    for boundary in sys.argv[2:] or BOUNDARIES:
        model = build_model(mesh, material, params.cut.blade, boundary=boundary, damage_law="edge")
        cut = SlicingCut(model, (values,), passage_of(mesh, model.knife, params), params)
        sawing = cut.straight()
        sawing[0], sawing[1] = SPEED_M_S / AMPLITUDE_M_S, RATE_RAD_S / FREQUENCY_RAD_S
        for name, variables in (("vertical", cut.straight()), ("sawing", sawing)):
            one = cut.cuts(variables)[0]
            times = [time.process_time()]
            result = simulate(one.model, one.motion, one.parameters, **one.options, differentiable=True)
            times.append(time.process_time())
            result.gradient(2.0 * result.force / len(result.force))
            times.append(time.process_time())
            s = result.statistics
            counts = (s.steps, s.newton_iterations, s.cg_iterations, s.factorisations)
            seconds = (f"{seconds:.2f}" for seconds in np.diff(times))
            mean = f"{cut.mean_of([result.force], variables):.5f}"
            print(ROW.format(boundary, name, *counts, *seconds, mean), flush=True)


if __name__ == "__main__":
    main()
