"""The knife: a convex pentagon extruded along the blade."""

from dataclasses import dataclass

import numpy as np
import warp as wp

from disect_sim.errors import InputError
from disect_sim.kernels import knife_distance as kernels

END_BLEND_M = 1.0e-3
"""Width of the rounding of the smooth knife towards spine and ends [m]; about one spring spacing / 5."""


@dataclass(frozen=True)
class Knife:
    """Blade geometry [m]. The edge runs along z, the blade is symmetric about x = 0, the origin is at the edge."""

    spine_m: float = 2.0e-3
    """Thickness at the spine."""
    edge_m: float = 0.08e-3
    """Thickness where the flanks end."""
    height_m: float = 40.0e-3
    """From edge to spine."""
    tip_m: float = 0.04e-3
    """Height of the small wedge that closes the section below the flanks."""
    length_m: float = 150.0e-3
    """Length of the blade along z."""

    def __post_init__(self) -> None:
        for name in ("spine_m", "edge_m", "height_m", "tip_m", "length_m"):
            if not getattr(self, name) > 0.0:
                raise InputError(
                    f"knife: {name} is {getattr(self, name)}. It must be > 0 m. Measure the blade."
                )
        if self.edge_m > self.spine_m or self.tip_m >= self.height_m:
            raise InputError(
                f"knife: edge {self.edge_m} m, spine {self.spine_m} m, tip {self.tip_m} m, height {self.height_m} m. "
                "The section must be convex: edge <= spine and tip < height. Mend the knife's geometry."
            )

    def shape(self) -> kernels.KnifeShape:
        """The geometry as the kernels want it."""
        across = 0.5 * (self.spine_m - self.edge_m)
        up = self.height_m - self.tip_m
        length = np.hypot(across, up)
        s = kernels.KnifeShape()
        s.flank_x, s.flank_y = up / length, -across / length
        s.flank_offset = s.flank_x * 0.5 * self.edge_m + s.flank_y * self.tip_m
        s.half_spine, s.half_edge = 0.5 * self.spine_m, 0.5 * self.edge_m
        s.tip_height, s.height, s.half_length = self.tip_m, self.height_m, 0.5 * self.length_m
        s.blend = END_BLEND_M
        return s

    def distance(
        self, points: np.ndarray, *, side: np.ndarray | None = None, tip_width_m: float = 1.0e-3
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Signed distance [m], gradient [-] and Hessian [1/m] at points [m], shape [n, 3], in the knife's frame.

        With `side` (+1 or -1 per point) the smooth one-sided distance of width `tip_width_m`; without it the exact
        distance, which has no Hessian (None).
        """
        n = len(points)
        exact = side is None
        sides = np.ones(n) if side is None else np.asarray(side, float)
        with wp.ScopedDevice("cpu"):
            out = wp.zeros(n, dtype=wp.float64), wp.zeros(n, dtype=wp.vec3d), wp.zeros(n, dtype=wp.mat33d)
            points_in = wp.array(np.ascontiguousarray(points, float), dtype=wp.vec3d)
            inputs = [
                self.shape(),
                int(exact),
                wp.float64(tip_width_m),
                wp.array(sides, dtype=wp.float64),
                points_in,
            ]
            wp.launch(kernels.sample_distance, dim=n, inputs=inputs, outputs=list(out))
        d, g, h = (a.numpy() for a in out)
        return d, g, None if exact else h


KNIVES = {
    "kitchen": Knife(),
    "slicing": Knife(length_m=254.0e-3),
    "folding": Knife(length_m=54.0e-3),
}
"""The three knives of the paper: the blade lengths differ, the section is the same."""
