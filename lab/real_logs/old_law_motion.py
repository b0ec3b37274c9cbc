"""What the three-term edge law gains in the choice of the motion: the motion that the pure slicing law of 0.2 would
choose, judged under the three-term law, beside the motion chosen under it.

    python -m lab.real_logs.old_law_motion SCAN      SCAN: run to the end
"""

import sys
from functools import partial

import numpy as np

from disect_sim.parameters import MATERIALS
from pipelines.project import find_project
from stages.optimize.confirmation import finer_cut, with_shares
from stages.optimize.optimize import read_shares
from stages.optimize.search import Optimization, optimize
from stages.optimize.slicing_cut import SlicingCut
from stages.runtime.artifacts import read_table
from stages.runtime.params import load_params
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file
from stages.shared.cut import cutting_model, read_cut_mesh, read_second_cut_values


def main() -> None:
    """Search under both laws and judge both motions under the new one."""
    project, scan = find_project(), sys.argv[1]
    folder = project.scan_dir(scan)
    read = partial(read_table, folder)
    params = load_params(project.root / PARAMS_FILE_NAME, folder / SCAN_FILE_NAME).optimize
    model = cutting_model(
        read_cut_mesh(read, "precut_half"), MATERIALS[read_scan_file(folder).material], params.cut
    )
    fitted, shares = read_second_cut_values(read), read_shares(read("calibrate/shares"))
    if shares is None:
        raise SystemExit("The scan's fit has no shares of the edge toughness.")
    nodes, tets = read("tetrahedralize_half/nodes"), read("tetrahedralize_half/tets")
    finer = finer_cut(nodes["position_m"].to_numpy(), tets["nodes"].to_numpy())
    laws = {
        "three terms": with_shares(fitted, shares.mean(axis=0)),
        "slice only": with_shares(fitted, np.zeros(2)),
    }
    found: dict[str, Optimization] = {
        name: optimize(model, values, params, finer=finer) for name, values in laws.items()
    }
    print(
        "| motion chosen under | its own saving | mean force under three terms / N | saving under three terms |"
    )
    print("|---|---|---|---|")
    judge = SlicingCut(model, (laws["three terms"],), found["three terms"].cut.passage, params)
    vertical = judge.mean_force(judge.straight())
    for name, optimum in found.items():
        force = judge.mean_force(optimum.slicing.variables)
        own = 100.0 * optimum.descent_reduction()
        print(f"| {name} | {own:.1f} % | {force:.2f} | {100.0 * (1.0 - force / vertical):.1f} % |")
    print(f"vertical cut under three terms: {vertical:.2f} N; descents without final strokes")


if __name__ == "__main__":
    main()
