"""Check 9: the motion cuts this fruit. In the cut plane, down to the board, against a force, and parting it."""

import numpy as np

from stages.export.checks import Check, at_least, at_most
from stages.export.demand import Demand
from stages.export.export_files import ExportFiles
from stages.export.motion_checks import cut_phase, edge_poses, in_cutting_frame
from stages.export.parting import area_below

PLANE_M = 0.0005
"""Half a blade's thickness: farther aside, the knife runs in another plane than the one that was simulated."""
END_HEIGHT_M = 0.001
"""How far above cut.board_clearance_m the edge may end; optimize keeps to half of it."""
DEPTH_M = 0.003
"""The edge counts as inside the fruit from here on: skin dents before it gives way."""
LEAST_WAY_M = 1e-9
"""So that a motion that never goes down has a share too: none."""
FELT_N = 0.1
FELT_SHARE = 0.9
UPWARD_N = 0.5
"""Less is no cut: a blade that rests on a tomato's skin weighs more."""
ABOVE_M, ABOVE_N = 0.003, 1.0
"""Height above the fruit from which nothing can touch, and what the prediction may say there."""
REACHED_SHARE = 0.95
"""Of the springs above the edge's end height; what lies below can't be reached and is stated beside it."""
SAME_M = 1e-4
"""Between the last frame of the simulated cut and the end of the motion: less than a step of the simulator."""


def cutting(files: ExportFiles, demand: Demand) -> list[Check]:
    """All of check 9."""
    start, end = cut_phase(files)
    edge = in_cutting_frame(edge_poses(files.cut.joints[start:end], demand), demand)
    again = "Run optimize again for this fruit"
    return [
        at_most(9, "edge beside the cut plane", float(np.abs(edge[:, 0]).max()), PLANE_M, "m", remedy=again),
        at_most(
            9,
            "lowest height of the edge",
            float(edge[:, 1].min()),
            demand.params.cut.board_clearance_m + END_HEIGHT_M,
            "m",
            "must reach cut.board_clearance_m above the board",
            remedy=again,
        ),
        *_force(edge, demand, again),
        *_parted(demand, float(edge[:, 1].min())),
    ]


def _force(edge: np.ndarray, demand: Demand, again: str) -> list[Check]:
    """The predicted force is there where the fruit is, pushes the knife out, and is not there above."""
    top = float(demand.fruit.section[..., 1].max())
    force = demand.cut.force
    if len(force) != len(edge):
        return [at_most(9, "samples of force missing", abs(len(force) - len(edge)), 0, "rows", remedy=again)]
    inside, above = edge[:, 1] < top - DEPTH_M, edge[:, 1] > top + ABOVE_M
    size = np.linalg.norm(force, axis=1)
    down = np.where(inside, np.maximum(0.0, -np.diff(edge[:, 1], prepend=edge[0, 1])), 0.0)
    way = max(float(down.sum()), LEAST_WAY_M)
    felt = float(down @ (size >= FELT_N)) / way
    upward = float(down @ force[:, 1]) / way
    early = float(size[above].max()) if above.any() else 0.0
    wrong = f"The torques are certified with this force. {again}"
    return [
        at_least(9, "share of the way in the fruit with a force", felt, FELT_SHARE, "-", remedy=wrong),
        at_least(9, "mean upward force in the fruit", upward, UPWARD_N, "N", remedy=wrong),
        at_most(9, "force above the fruit", early, ABOVE_N, "N", remedy=wrong),
    ]


def remaining(demand: Demand, lowest_m: float) -> str:
    """What the edge leaves whole, in words, for the lowest height that it reaches above the board [m]."""
    below, whole = (1e6 * area_below(demand.fruit.section, height) for height in (lowest_m, np.inf))
    height = f"the edge ends {1e3 * max(0.0, lowest_m):.2g} mm above the board"
    return f"{demand.parting.remains()}; {height}, with {below:.0f} of {whole:.0f} mm² below it"


def _parted(demand: Demand, lowest_m: float) -> list[Check]:
    parting = demand.parting
    off = float(np.linalg.norm(parting.end_position_m - demand.cut.position[-1]))
    return [
        at_most(
            9,
            "end of the simulated cut from the motion's",
            off,
            SAME_M,
            "m",
            remedy="The simulated cut stopped early or is of another motion; run replay again",
        ),
        at_least(
            9,
            "share parted of what the edge passes",
            parting.reached_fraction,
            REACHED_SHARE,
            "-",
            parting.remains(),
            remedy="The simulated knife left whole what it went through; look at the replay, and optimise again",
        ),
        at_least(
            9,
            "share of the cut that is parted",
            parting.cut_fraction,
            demand.params.min_cut_fraction,
            "-",
            remaining(demand, lowest_m),
            remedy="Lower optimize.final_height_m, raise optimize.final_strokes or final_stroke_s, or state in "
            "export.min_cut_fraction what is enough for you",
        ),
    ]
