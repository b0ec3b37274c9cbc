"""The knife as triangles, for viewers: a wedge; its 0.08 mm edge would not be seen."""

from typing import Any

WEDGE = ((0, 1, 4), (0, 4, 3), (1, 2, 5), (1, 5, 4), (2, 0, 3), (2, 3, 5), (0, 2, 1), (3, 4, 5))
"""Faces of blade_points, counter-clockwise seen from outside."""


def blade_points(metrics: dict[str, Any]) -> list[tuple[float, float, float]]:
    """Corners of the blade [m] about the middle of its edge, from replay/metrics."""
    half, up, side = (
        0.5 * metrics["blade_length_m"],
        metrics["blade_height_m"],
        0.5 * metrics["blade_spine_m"],
    )
    section = ((0.0, 0.0), (side, up), (-side, up))
    return [(x, y, z) for z in (-half, half) for x, y in section]
