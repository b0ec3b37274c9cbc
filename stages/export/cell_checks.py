"""Check 4, the cell: fixture, flange, blade and centre of mass fit together, and the arm stays off board and base."""

import numpy as np

from stages.export.checks import Check, at_least, at_most
from stages.export.demand import Demand
from stages.export.export_files import ExportFiles
from stages.export.links import base_distance, blade_box, link_heights

FIXTURE_SIDE_M = 0.005
"""Shortest side that the box of a real holder has."""
HELD_GAP_M = 0.03
"""From the end of the blade to its holder: a tang is that long at most."""
CENTRE_M = 0.001
"""How far the stated centre of mass may lie outside the boxes of knife and fixture, for rounding."""
BLADE_KG_M3 = 4000.0
"""Lighter than any blade: titanium has 4400, ceramics 6000, steel 7800."""
LINK_CLEARANCE_M = 0.02
BASE_CLEARANCE_M = 0.05
STRIDE = 10
"""Samples between looks at the links, which move less than 3 mm in that time."""


def tool_fits(demand: Demand) -> list[Check]:
    """Flange, holder, blade and centre of mass as stated could be one body."""
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
    blade_kg = BLADE_KG_M3 * knife.length_m * knife.height_m * 0.5 * (knife.spine_m + knife.edge_m)
    return [
        at_least(
            4,
            "mass of knife and fixture against the blade alone",
            cell.tool_mass_kg,
            blade_kg,
            "kg",
            remedy="Weigh knife and fixture and state it in export.tool_mass_kg: the arm is sent this load",
        ),
        at_least(
            4,
            "shortest side of the fixture's box",
            float((high - low).min()),
            FIXTURE_SIDE_M,
            "m",
            remedy="export.fixture_low_m must be below export.fixture_high_m on every axis; exchange what is swapped",
        ),
        at_least(
            4,
            "flange inside the fixture's box",
            inside,
            0.0,
            "m",
            f"flange centre at {_mm(flange)} mm from the edge",
            remedy="Measure export.edge_offset_m from the flange, and let export.fixture_* enclose the flange",
        ),
        at_most(
            4,
            "gap between blade and fixture",
            gap,
            HELD_GAP_M,
            "m",
            remedy="Something must hold the blade: correct cut.knife or export.fixture_*",
        ),
        at_most(
            4,
            "centre of mass outside knife and fixture",
            float(np.maximum(*around).max()),
            CENTRE_M,
            "m",
            f"at {_mm(centre)} mm from the edge",
            remedy="Correct export.tool_com_m or export.edge_offset_m; both are in the flange's frame",
        ),
    ]


def arm_is_clear(files: ExportFiles, demand: Demand) -> list[Check]:
    """Links above the board, wrist and tool away from the base; cut and air cut."""
    robot, board = demand.robot, float(demand.cell.o_t_c[2, 3])
    looked = [variant.joints[::STRIDE] for variant in (files.cut, files.air)]
    lowest = min(float(link_heights(robot, q).min()) for q in looked) - board
    near = min(base_distance(robot, demand.cell, q) for q in looked)
    return [
        at_least(
            4,
            "height of the arm's links above the board",
            lowest,
            LINK_CLEARANCE_M,
            "m",
            remedy="Hang the knife lower below the flange (export.edge_offset_m), or move the board",
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


def _mm(place: np.ndarray) -> str:
    return "(" + ", ".join(f"{1e3 * v:.0f}" for v in place) + ")"
