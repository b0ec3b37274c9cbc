"""Checks 4 and 9: arm, knife and fixture keep clear of board, base and fruit; and the motion cuts this fruit."""

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import base_distance, blade_box, link_heights
from stages.export.checks import CUT_FRACTION, Check, at_least, at_most
from stages.export.demand import Demand, Fruit, area_below
from stages.export.export_files import ExportFiles
from stages.export.motion_checks import (
    POSE_M,
    cut_phase,
    edge_poses,
    edge_track,
    fixture_boxes,
    heights_over,
    in_cutting_frame,
    lowest_heights,
)
from stages.shared.cut_description import BESIDE_M

# Check 9: in the cut plane, down to the board, against a force, and through the fruit


_PLANE_M = 0.0005
"""Half a blade's thickness: farther off, the knife moves in another plane than the simulated one."""
_END_HEIGHT_M = 0.001
"""Permitted height above cut.board_clearance_m at the end; optimize uses half of it."""
_DEPTH_M = 0.003
"""Depth from which the edge counts as inside the fruit: skin dents before it gives way."""
_LEAST_WAY_M = 1e-9
"""Minimum path length, so that a motion that never goes down has a fraction too: zero."""
_FELT_N = 0.02
_FELT_SHARE = 0.9
_UPWARD_N = 0.05
"""Minimum upward force of a cut: sawing through a ripe banana needs three times that, and a forgotten force is zero."""
_ABOVE_M, _ABOVE_N = 0.003, 1.0
"""Height above the fruit from which nothing can touch, and the force the prediction may have there."""
_REACHED_SHARE = 0.95
"""Minimum cut fraction of the springs above the edge's end height; those below can't be reached and are stated."""
_SAME_M = 1e-4
"""Permitted distance of the last frame of the simulated cut from the end of the motion: less than a simulator step."""


def cutting(files: ExportFiles, demand: Demand) -> list[Check]:
    """Run check 9."""
    start, end = cut_phase(files)
    poses = edge_poses(files.cut.joints[start:end], demand)
    edge, again = in_cutting_frame(poses, demand), "Run optimize again for this fruit"
    over = _over_the_section(poses, demand)
    lowest = float(over.min(axis=0).max())
    return [
        at_most(
            9,
            "distance of the edge from the cut plane",
            float(np.abs(edge[:, 0]).max()),
            _PLANE_M,
            "m",
            remedy=again,
        ),
        at_most(
            9,
            "lowest height of the edge",
            lowest,
            demand.params.cut.board_clearance_m + _END_HEIGHT_M,
            "m",
            "must reach cut.board_clearance_m above the board"
            + ("" if demand.level else ", everywhere in the section"),
            remedy=again,
        ),
        *_force(over, demand, again),
        *_parted(demand, lowest),
        *_clear_of_rigid(poses, demand),
    ]


_PLACES = 41
"""Places along the cut section where the height of an edge that is not level is looked at."""


def _over_the_section(poses: NDArray[np.float64], demand: Demand) -> NDArray[np.float64]:
    """Return the height of the edge over places of the fruit's cut section [m], shape [n, place_count].

    One place for a level edge, which is equally high everywhere.
    """
    if demand.level:
        return in_cutting_frame(poses, demand)[:, 1:2]
    fruit = demand.fruit
    places = np.linspace(fruit.section_low_m, fruit.section_high_m, _PLACES)
    over = heights_over(poses, demand, places)
    return np.where(np.isfinite(over), over, over[np.isfinite(over)].max(initial=0.0))


def _clear_of_rigid(poses: NDArray[np.float64], demand: Demand) -> list[Check]:
    """Check the height of the edge above rigid regions beside the cut plane, if the fruit has any."""
    tops = demand.parting.rigid_tops_m
    if not len(tops):
        return []
    reach, edge = 0.5 * demand.params.cut.blade.length_m, in_cutting_frame(poses, demand)
    above = np.inf
    for z, y in tops:
        over = np.abs(edge[:, 2] - z) <= reach
        if demand.level and over.any():
            above = min(above, float(edge[over, 1].min()) - y)
    if not demand.level:
        above = float((heights_over(poses, demand, tops[:, 0]) - tops[:, 1]).min())
    return [
        at_least(
            9,
            "height of the edge above rigid regions",
            above,
            BESIDE_M,
            "m",
            f"stone or core within {1e3 * BESIDE_M:g} mm of the cut plane",
            remedy="The blade would hit it. Move the cut with halve.offset_m, or end above it with "
            "cut.board_clearance_m",
        )
    ]


def _force(over: NDArray[np.float64], demand: Demand, again: str) -> list[Check]:
    """Check that the predicted force acts in the fruit, pushes the knife out, and vanishes above.

    over: height of the edge over places of the section [m], shape [n, place_count].
    """
    top = float(demand.fruit.section[..., 1].max())
    force = demand.cut.force
    if len(force) != len(over):
        return [at_most(9, "samples of force missing", abs(len(force) - len(over)), 0, "rows", remedy=again)]
    lowest = over.min(axis=1)
    inside, above = lowest < top - _DEPTH_M, lowest > top + _ABOVE_M
    size = np.linalg.norm(force, axis=1)
    down = np.where(inside, np.maximum(0.0, -np.diff(over, axis=0, prepend=over[:1])).mean(axis=1), 0.0)
    way = max(float(down.sum()), _LEAST_WAY_M)
    felt = float(down @ (size >= _FELT_N)) / way
    upward = float(down @ force[:, 1]) / way
    early = float(size[above].max()) if above.any() else 0.0
    wrong = f"The torques are certified with this force. {again}"
    return [
        at_least(9, "fraction of the path in the fruit with a force", felt, _FELT_SHARE, "-", remedy=wrong),
        at_least(9, "mean upward force in the fruit", upward, _UPWARD_N, "N", remedy=wrong),
        at_most(9, "force above the fruit", early, _ABOVE_N, "N", remedy=wrong),
    ]


def _remaining(demand: Demand, lowest_m: float) -> str:
    """Describe what the edge leaves uncut, for the lowest height that it reaches above the board [m]."""
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
            _SAME_M,
            "m",
            remedy="The simulated cut stopped early or belongs to another motion; run replay again",
        ),
        at_least(
            9,
            "cut fraction of the springs the edge passes",
            parting.reached_fraction,
            _REACHED_SHARE,
            "-",
            parting.remains(),
            remedy="The simulated knife did not cut what it passed; look at it with 'scan2cut view', optimise again",
        ),
        at_most(
            9,
            "elements inside out in the simulated cut",
            parting.inverted_tets,
            0,
            "tets",
            remedy="The predicted force is unreliable. Lower tetrahedralize_half.cut_edge_m or cut.dt_s",
        ),
        at_least(
            9,
            CUT_FRACTION,
            parting.cut_fraction,
            demand.params.min_cut_fraction,
            "-",
            _remaining(demand, lowest_m),
            remedy="Lower optimize.final_height_m, raise optimize.final_strokes or final_stroke_s, or set in "
            "export.min_cut_fraction what you accept",
        ),
    ]


# Check 4: edge and fixture clear of the board, fixture clear of the fruit, blade longer than the fruit's section


def space(files: ExportFiles, demand: Demand) -> list[Check]:
    """Run check 4 at every sample of the file."""
    params, cell, fruit = demand.params, demand.cell, demand.fruit
    poses = edge_poses(files.cut.joints, demand)
    edge, track = in_cutting_frame(poses, demand), edge_track(poses, demand)
    half = 0.5 * cell.blade_length_m
    lowest = float(track[..., 1].min())
    start, end = cut_phase(files)
    first, last = edge[start:end, 2] - half, edge[start:end, 2] + half
    if not demand.level:
        first, last = track[start:end, 0, 2], track[start:end, -1, 2]
    overlap = min(float((fruit.section_low_m - first).min()), float((last - fruit.section_high_m).min()))
    least = params.min_board_clearance_m - POSE_M
    holder_low, holder_high = fixture_boxes(poses, demand)
    fixture_height = float(holder_low[:, 1].min())
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
            float(_box_distance(holder_low, holder_high, fruit).min()),
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
            _start_height(poses[start : start + 1], demand) - float(fruit.high_m[1]),
            0.0,
            "m",
            remedy="Run optimize again for this fruit",
        ),
        at_least(
            4,
            "air cut: height of the edge above the board",
            float(lowest_heights(edge_poses(files.air.joints, demand), demand).min()),
            least,
            "m",
            remedy=higher,
        ),
    ]


def _start_height(pose: NDArray[np.float64], demand: Demand) -> float:
    """Return the height above the board at which the edge begins [m]: of an inclined one, over the fruit's length."""
    if demand.level:
        return float(lowest_heights(pose, demand)[0])
    places = np.linspace(demand.fruit.low_m[2], demand.fruit.high_m[2], _PLACES)
    return float(heights_over(pose, demand, places).min())


_PLACES = 41


def _box_distance(low: NDArray[np.float64], high: NDArray[np.float64], fruit: Fruit) -> NDArray[np.float64]:
    """Return the gap between boxes [m], shape [n, 3] each, and the fruit's along the best axis, shape [n]."""
    return np.asarray(np.maximum(low - fruit.high_m, fruit.low_m - high).max(axis=1))


_FIXTURE_SIDE_M = 0.005
"""Shortest side of a real holder's box."""
_HELD_GAP_M = 0.03
"""Maximum distance from the end of the blade to its holder: the length of a tang."""
_CENTRE_M = 0.001
"""Permitted distance of the stated centre of mass from the boxes of knife and fixture, for rounding."""
_BLADE_KG_M3 = 4000.0
"""Lower bound of a blade's density: titanium has 4400, ceramics 6000, steel 7800."""
_TOOL_KG = 0.1
"""Least mass of a knife with its holder: a paring knife has 60 g, a clamp more."""
_BLADE_M = 0.4
"""Longest blade: kitchen knives have up to 0.36 m."""
LINK_CLEARANCE_M = 0.02
BASE_CLEARANCE_M = 0.05
_STRIDE = 10
"""Samples between evaluations of the links, which move less than 3 mm in that time."""


def tool_fits(demand: Demand) -> list[Check]:
    """Check that flange, holder, blade and centre of mass as stated could be one body."""
    cell = demand.cell
    low, high = cell.fixture_low_m, cell.fixture_high_m
    blade_low, blade_high = blade_box(cell)
    turn, edge = cell.f_t_e[:3, :3], cell.f_t_e[:3, 3]
    flange, centre = -turn.T @ edge, turn.T @ (cell.tool_com_m - edge)
    reach = demand.robot.flange_radius_m * np.array([1.0, 0.0, 1.0])
    inside = float(np.minimum(flange - reach - low, high - flange - reach).min())
    around = np.minimum(low, blade_low) - centre, centre - np.maximum(high, blade_high)
    gap = float(np.maximum(low - blade_high, blade_low - high).max())
    knife = demand.params.cut.blade
    blade_kg = _BLADE_KG_M3 * knife.length_m * knife.height_m * 0.5 * (knife.spine_m + knife.edge_m)
    return [
        at_least(
            4,
            "mass of knife and fixture against the blade alone",
            cell.tool_mass_kg,
            max(blade_kg, _TOOL_KG),
            "kg",
            remedy="Weigh knife and fixture and correct mass_kg of the knife: it is sent to the arm",
        ),
        at_most(
            4,
            "length of the blade",
            cell.blade_length_m,
            _BLADE_M,
            "m",
            remedy="Choose a knife that an arm can hold at one end (cut.knife)",
        ),
        at_least(
            4,
            "shortest side of the fixture's box",
            float((high - low).min()),
            _FIXTURE_SIDE_M,
            "m",
            remedy="export.fixture_low_m must be below export.fixture_high_m on every axis; swap them",
        ),
        at_least(
            4,
            "flange inside the fixture's box",
            inside,
            0.0,
            "m",
            f"flange centre at {_mm(flange)} mm from the edge",
            remedy="Measure export.edge_offset_m from the flange, and make export.fixture_* enclose the flange",
        ),
        at_most(
            4,
            "gap between blade and fixture",
            gap,
            _HELD_GAP_M,
            "m",
            remedy="Something must hold the blade: correct cut.knife or export.fixture_*",
        ),
        at_most(
            4,
            "centre of mass outside knife and fixture",
            float(np.maximum(*around).max()),
            _CENTRE_M,
            "m",
            f"at {_mm(centre)} mm from the edge",
            remedy="Correct com_m of the knife or export.edge_offset_m; both are in the flange's frame",
        ),
    ]


def arm_is_clear(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check that the links stay above the board, and wrist and tool away from the base; cut and air cut."""
    robot, board = demand.robot, float(demand.cell.o_t_c[2, 3])
    looked = [variant.joints[::_STRIDE] for variant in (files.cut, files.air)]
    lowest = min(float(link_heights(robot, q).min()) for q in looked) - board
    near = min(base_distance(robot, demand.cell, q) for q in looked)
    return [
        at_least(
            4,
            "height of the arm's links above the board",
            lowest,
            LINK_CLEARANCE_M,
            "m",
            remedy="Mount the knife farther below the flange (export.edge_offset_m), or move the board",
        ),
        at_least(
            4,
            "distance of wrist and tool from the base",
            near,
            BASE_CLEARANCE_M,
            "m",
            remedy="Move the board away from the base (export.board_position_m)",
        ),
    ]


def _mm(point: np.ndarray) -> str:
    return "(" + ", ".join(f"{1e3 * v:.0f}" for v in point) + ")"
