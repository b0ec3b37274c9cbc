"""The hard constraints of the motion, as MDMM wants them and as residuals a person can read."""

from collections.abc import Callable
from dataclasses import dataclass

import mdmm
import torch

from stages.optimizing.slicing_cut import SlicingCut, Trajectory
from stages.params import OptimizeParams


@dataclass(frozen=True)
class Rule:
    """One constraint: how large something is, and what it may be."""

    name: str
    unit: float
    """Size of one unit of the optimiser, so that all residuals are comparable."""
    measure: Callable[[Trajectory], torch.Tensor]
    limit: float
    equality: bool
    tolerance: float
    """Residual up to which a motion counts as feasible, in the measure's own unit."""

    def residual(self, trajectory: Trajectory) -> float:
        """By how much the rule is broken, >= 0, in the measure's own unit."""
        beyond = float(self.measure(trajectory)) - self.limit
        return abs(beyond) if self.equality else max(0.0, beyond)


def rules_of(cut: SlicingCut, params: OptimizeParams) -> tuple[Rule, ...]:
    """End height, fruit under the blade, speed, acceleration, clearance of the board."""
    p = cut.passage
    return (
        Rule("end_height_m", 0.01, lambda t: t.position[-1, 1], p.end_m, True, 0.5e-3),
        Rule("lateral_m", 0.01, lambda t: (t.position[:, 2] - p.z_m).abs().max(), p.lateral_limit_m, False, 0.5e-3),
        Rule("speed_m_s", 0.1, lambda t: _norm(t.velocity).max(), params.max_speed_m_s, False, 1e-3),
        Rule("acceleration_m_s2", 2.0, lambda t: _norm(t.acceleration).max(), params.max_acceleration_m_s2, False, 0.05),
        Rule("dip_m", 0.01, lambda t: (p.end_m - t.position[:, 1]).max(), 0.0, False, 0.5e-3),
    )


def _norm(v: torch.Tensor) -> torch.Tensor:
    """Norm along the last axis, differentiable at rest."""
    return (v * v).sum(dim=-1).add(1e-12).sqrt()


class Constraints:
    """The rules under MDMM: multipliers, slacks, damping."""

    def __init__(self, rules: tuple[Rule, ...], damping: float) -> None:
        self.rules = rules
        self._trajectory: Trajectory | None = None
        self.module = mdmm.MDMM([self._constraint(rule, damping) for rule in rules])

    def _constraint(self, rule: Rule, damping: float) -> mdmm.Constraint:
        def measured() -> torch.Tensor:
            assert self._trajectory is not None
            return rule.measure(self._trajectory) / rule.unit

        kind = mdmm.EqConstraint if rule.equality else mdmm.MaxConstraint
        return kind(measured, rule.limit / rule.unit, damping=damping)

    def lagrangian(self, objective: torch.Tensor, trajectory: Trajectory) -> torch.Tensor:
        """What the optimiser descends in the variables and slacks, and ascends in the multipliers."""
        self._trajectory = trajectory
        return self.module(objective).value

    def residuals(self, trajectory: Trajectory) -> dict[str, float]:
        """By how much every rule is broken."""
        return {rule.name: rule.residual(trajectory) for rule in self.rules}

    def feasible(self, trajectory: Trajectory) -> bool:
        """True if every rule holds within its tolerance."""
        return all(rule.residual(trajectory) <= rule.tolerance for rule in self.rules)
