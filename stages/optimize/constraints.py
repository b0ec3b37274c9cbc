"""The hard constraints of the motion, as MDMM wants them and as residuals a person can read."""

from collections.abc import Callable
from dataclasses import dataclass

import mdmm
import torch

from stages.optimize.params import OptimizeParams
from stages.optimize.passage import Passage
from stages.optimize.slicing_cut import Trajectory


@dataclass(frozen=True)
class Rule:
    """One constraint: how large something is, and what it may be."""

    name: str
    """With the unit of its measure."""
    unit: float
    """Size of one unit of the optimiser, so that all residuals are comparable."""
    measure: Callable[[Trajectory], torch.Tensor]
    limit: float
    equality: bool
    tolerance: float
    """Residual up to which a motion counts as feasible, in the measure's own unit."""

    def residual(self, trajectory: Trajectory) -> float:
        """By how much the rule is broken, >= 0, in the measure's own unit."""
        beyond = float(self.measure(trajectory).detach()) - self.limit
        return abs(beyond) if self.equality else max(0.0, beyond)


def rules_of(passage: Passage, params: OptimizeParams) -> tuple[Rule, ...]:
    """End height, fruit under the blade, speed, acceleration, clearance of the board. The maxima are over all t."""
    p = passage
    return (
        Rule("end_height_m", 0.01, lambda t: t.position[-1, 1], p.end_m, True, 0.5e-3),
        Rule(
            "lateral_m",
            0.01,
            lambda t: (t.position[:, 2] - p.z_m).abs().max(),
            p.lateral_limit_m,
            False,
            0.5e-3,
        ),
        Rule(
            "speed_m_s",
            0.1,
            lambda t: (t.velocity**2).sum(dim=1).max().add(1e-12).sqrt(),
            params.max_speed_m_s,
            False,
            1e-3,
        ),
        Rule(
            "acceleration_along_m_s2",
            2.0,
            lambda t: t.acceleration[:, 1].abs().max(),
            params.max_acceleration_along_m_s2,
            False,
            0.05,
        ),
        Rule(
            "acceleration_vertical_m_s2",
            1.0,
            lambda t: t.acceleration[:, 0].abs().max(),
            params.max_acceleration_vertical_m_s2,
            False,
            0.05,
        ),
        Rule("board_m", 0.01, lambda t: (p.end_m - t.position[:, 1]).max(), 0.0, False, 0.5e-3),
    )


class Constraints:
    """The rules under MDMM: multipliers, slacks, damping."""

    def __init__(self, rules: tuple[Rule, ...], params: OptimizeParams) -> None:
        self.rules = rules
        self._trajectory: Trajectory | None = None
        self.module = mdmm.MDMM([self._constraint(rule, params) for rule in rules]).double()

    def _constraint(self, rule: Rule, params: OptimizeParams) -> mdmm.Constraint:
        weight = params.constraints[rule.name]

        def measured() -> torch.Tensor:
            assert self._trajectory is not None
            return rule.measure(self._trajectory) / rule.unit

        kind = mdmm.EqConstraint if rule.equality else mdmm.MaxConstraint
        return kind(measured, rule.limit / rule.unit, scale=weight.scale, damping=weight.damping)

    def lagrangian(self, objective: torch.Tensor, trajectory: Trajectory) -> torch.Tensor:
        """What the variables descend, and the multipliers ascend.

        The slacks stand at their minimum. As variables of the optimiser they lag behind, and a constraint that is far
        from active holds the motion back like an equality.
        """
        self._trajectory = trajectory
        for constraint in self.module:
            if isinstance(constraint, mdmm.MaxConstraint):
                with torch.no_grad():
                    room = constraint.max - constraint.fn() + constraint.lmbda / constraint.damping
                    constraint.slack.copy_(room.relu().sqrt())
        return self.module(objective).value

    def multipliers(self) -> list[torch.nn.Parameter]:
        """One per rule."""
        return [constraint.lmbda for constraint in self.module]

    def ascend(self, rate: float) -> None:
        """One step of the multipliers up their gradient, which the last backward pass left."""
        with torch.no_grad():
            for multiplier in self.multipliers():
                if multiplier.grad is not None:
                    multiplier.add_(multiplier.grad, alpha=rate)
                    multiplier.grad = None

    def violation(self, residuals: dict[str, float]) -> float:
        """Sum of what the residuals are beyond their tolerances, in units of the rules; 0 is feasible."""
        return sum(max(0.0, residuals[rule.name] - rule.tolerance) / rule.unit for rule in self.rules)

    def residuals(self, trajectory: Trajectory) -> dict[str, float]:
        """By how much every rule is broken."""
        return {rule.name: rule.residual(trajectory) for rule in self.rules}
