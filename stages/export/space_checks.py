"""Check 4: edge and fixture clear of the board, fixture clear of the fruit, fruit under the blade all the time."""

import numpy as np
from numpy.typing import NDArray

from stages.export.checks import Check, at_least
from stages.export.demand import Demand, Fruit
from stages.export.export_files import ExportFiles
from stages.export.motion_checks import POSE_M, cut_phase, edge_poses, in_cutting_frame


def space(files: ExportFiles, demand: Demand) -> list[Check]:
    """All of check 4, at every sample of the file."""
    params, cell, fruit = demand.params, demand.cell, demand.fruit
    poses = edge_poses(files.cut.joints, demand)
    edge = in_cutting_frame(poses, demand)
    turn = demand.cell.o_t_c[:3, :3].T @ poses[:, :3, :3]
    half = 0.5 * cell.blade_length_m
    tips = [edge + turn[:, :, 2] * end for end in (-half, half)]
    lowest = min(float(tip[:, 1].min()) for tip in tips)
    start, end = cut_phase(files)
    cut = edge[start:end]
    overlap = min(
        float((fruit.section_low_m - (cut[:, 2] - half)).min()),
        float((cut[:, 2] + half - fruit.section_high_m).min()),
    )
    least = params.min_board_clearance_m - POSE_M
    fixture_height = float((edge[:, 1] + cell.fixture_low_m[1]).min())
    higher = "Measure the board (export.board_position_m); raise optimize.final_height_m if the edge must end higher"
    smaller = "Correct export.fixture_low_m and fixture_high_m, or hold the knife farther from the fruit"
    longer = "Use a longer knife (cut.knife), turn the fruit, or lower export.blade_overlap_m"
    return [
        at_least(4, "height of the whole edge above the board", lowest, least, "m", remedy=higher),
        at_least(
            4,
            "height of the fixture above the board",
            fixture_height,
            params.fixture_clearance_m,
            "m",
            remedy=smaller,
        ),
        at_least(
            4,
            "distance of the fixture from the fruit",
            float(box_distance(edge + cell.fixture_low_m, edge + cell.fixture_high_m, fruit).min()),
            params.fixture_clearance_m,
            "m",
            remedy=smaller,
        ),
        at_least(
            4, "blade beyond the fruit at both ends", overlap, params.blade_overlap_m, "m", remedy=longer
        ),
        at_least(
            4,
            "start of the cut above the fruit",
            float(edge[start, 1] - fruit.high_m[1]),
            0.0,
            "m",
            remedy="Run optimize again for this fruit",
        ),
        at_least(
            4,
            "air cut: height of the edge above the board",
            float(in_cutting_frame(edge_poses(files.air.joints, demand), demand)[:, 1].min()),
            least,
            "m",
            remedy=higher,
        ),
    ]


def box_distance(low: NDArray[np.float64], high: NDArray[np.float64], fruit: Fruit) -> NDArray[np.float64]:
    """Gap between boxes [m], shape [n, 3] each, and the fruit's box along the best of the three axes, shape [n]."""
    return np.asarray(np.maximum(low - fruit.high_m, fruit.low_m - high).max(axis=1))
