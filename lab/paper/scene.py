"""The block that the synthetic experiments cut: coarse, so that a gradient takes less than a second."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim import MATERIALS, RecordedMotion, build_model, cut_by_plane, simulate
from disect_sim.cut_mesh import box_mesh
from disect_sim.model import Model
from disect_sim.parameters import Values
from lab.paper.kept import ROOT
from stages.calibrate.description import CalibrateParams
from stages.calibrate.problem import RecordedCut, find_onset
from stages.runtime.params import load_params
from stages.shared.fitting import low_pass

LOW, HIGH = (-0.02, 0.0, -0.015), (0.02, 0.025, 0.015)
"""Corners of the block [m]: 40 mm across the cut, 25 mm high, 30 mm along the blade."""
ABOVE_M = 0.006
"""The knife starts this far above the block."""
END_M = 0.003
"""And ends this far above the board."""
PAPER = {
    "cut_spring_ke": 200.0,
    "cut_spring_kd": 0.1,
    "cut_spring_softness": 0.3,
    "sdf_ke": 5100.0,
    "sdf_kd": 1.0,
    "sdf_kf": 0.01,
    "sdf_mu": 0.5,
    "sdf_stribeck": 0.0,
    "sdf_radius": 0.5e-3,
    "sdf_tip": 1.0e-3,
}
"""Synthetic truth under the paper's law, with its two parameters; softness such that the block is cut through."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scene:
    """How fine everything is."""

    cells: tuple[int, int, int] = (3, 3, 3)
    """Of the mesh; an odd number across the cut keeps nodes off its plane."""
    dt_s: float = 0.008
    rate_hz: float = 125.0

    def model(self, *, law: str = "force", cells: tuple[int, int, int] | None = None) -> Model:
        """The block, glued to the board."""
        mesh = cut_by_plane(*box_mesh(LOW, HIGH, cells or self.cells))
        return build_model(mesh, MATERIALS["apple"], boundary="glued", damage_law=law)

    def params(self, **changes: object) -> CalibrateParams:
        """The shipped settings for this scene."""
        shipped = load_params(ROOT / "params.yaml").calibrate
        base = {
            "damage_law": "force",
            "boundary": "glued",
            "dt_s": self.dt_s,
            "rate_hz": self.rate_hz,
            "align": "recorded",
            "forecast_from": 0.0,
            "processes": 1,
            "start": PAPER,
        }
        return shipped.changed(**{**base, **changes})

    def record(
        self,
        model: Model,
        parameters: Values,
        *,
        speed: float = 0.05,
        noise_n: float = 0.3,
        seed: int = 0,
        seconds: float | None = None,
        height_m: float = HIGH[1],
    ) -> RecordedCut:
        """A synthetic log of a straight cut at `speed` [m/s], its first `seconds` only if given."""
        top = height_m + ABOVE_M
        steps = int((top - END_M) / speed / self.dt_s)
        ends = np.array([0.0, steps * self.dt_s])
        motion = RecordedMotion(ends, np.stack([top - speed * ends, np.zeros(2)], axis=1))
        result = simulate(
            model,
            motion,
            parameters,
            duration=ends[1],
            dt=self.dt_s,
            sample_rate_hz=self.rate_hz,
        )
        if not result.outcome.ok:
            raise RuntimeError(f"the synthetic truth did not finish: {result.outcome}")
        # A sample is the mean over the interval that ends at its time.
        time, force = result.time - 0.5 / self.rate_hz, result.force.copy()
        force[:, 1] += np.random.default_rng(seed).normal(0.0, noise_n, len(time))
        smooth = low_pass(time, force, load_params(ROOT / "params.yaml").reading.filter_cutoff_hz)
        onset = find_onset(time, np.linalg.norm(smooth, axis=1))
        assert onset is not None
        use = slice(None) if seconds is None else time <= seconds
        velocity = np.tile([0.0, -speed, 0.0], (len(time), 1))
        valid = np.ones(len(time), bool)
        return RecordedCut(time[use], motion.poses(time)[use], velocity[use], force[use], valid[use], onset)
