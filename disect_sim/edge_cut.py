"""The edge law during a run: depth of the edge, its force, and the remaining spring stiffness."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import warp as wp

from disect_sim.device_arrays import host, upload, zeros
from disect_sim.kernels import edge
from disect_sim.knife import across_x, turned
from disect_sim.laws import EDGE_PARAMETERS
from disect_sim.model import Model
from disect_sim.outcome import InputError
from disect_sim.parameters import ExpandedParameters

PAID_AFTER = 16.0
"""Depth in rise lengths beyond which a sample has no force; 2e-6 of the toughness remain."""


LAW_ARRAYS = ("toughness", "rise", "press", "drag")
"""Fields of _EdgeParameters that the kernels take, in the order of their arguments."""


def moment(points: np.ndarray, forces: np.ndarray) -> np.ndarray:
    """Return the sum of the cross products [N m], shape [3], of points [m] and forces [N], each of shape [count, 3]."""
    m = points.T @ forces
    return np.array([m[1, 2] - m[2, 1], m[2, 0] - m[0, 2], m[0, 1] - m[1, 0]])


@dataclass(frozen=True)
class EdgeLoad:
    """The edge's force during one step."""

    force: np.ndarray
    """Force on the body at each sample [N], shape [sample_count, 3]."""
    point: np.ndarray
    """Samples relative to the knife's origin, in the cut's directions [m], shape [sample_count, 3]."""
    pitch: float
    """Pitch of the knife at the end of the step [rad]."""
    velocity: np.ndarray
    """Velocity [m/s] and turning rate [rad/s] of the knife at the end of the step, shape [4]."""
    paying: np.ndarray
    """Samples that can have a force: passed, with fracture energy still to be spent."""
    drag_power_w: float
    """Power that the edge's drag dissipates at the end of the step [W]."""

    def local(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples that can have a force in the knife's frame [m], and the edge's velocity there [m/s]."""
        point = turned(self.point[self.paying], -self.pitch)
        velocity = np.tile(turned(self.velocity[None, :3], -self.pitch), (len(point), 1))
        if self.velocity[3] != 0.0:
            velocity += self.velocity[3] * across_x(point)
        return point, velocity

    @property
    def on_knife(self) -> np.ndarray:
        """Force on the knife [N], shape [3]."""
        return -self.force.sum(axis=0)

    @property
    def torque_on_knife(self) -> np.ndarray:
        """Torque on the knife about its origin [N m], shape [3]."""
        return -moment(self.point, self.force)


@dataclass(frozen=True)
class _EdgeParameters:
    """Parameters of the edge law at every sample."""

    toughness: np.ndarray
    """Fracture toughness including, near the rim, skin toughness [J/m^2], shape [sample_count]."""
    rise: np.ndarray
    """Edge rise length [m], shape [sample_count]."""
    press: np.ndarray
    """Press share of the toughness, which drawing the blade does not lower [-], shape [sample_count]."""
    drag: np.ndarray
    """Drag share of the toughness [-], shape [sample_count]."""
    skin_share: np.ndarray
    """Weight of the skin toughness [-], shape [sample_count]."""


class EdgeCut:
    """Forces and states of the edge law for one model, on the present Warp device."""

    def __init__(self, model: Model, parameters: ExpandedParameters) -> None:
        self.samples = model.edge_samples
        self.initial = parameters.row("cut_spring_ke")
        self._fixed = model.fixed
        self._fields = model.sample_fields
        s = self.samples
        weighted = s.to_springs.T.multiply(s.area).tocsr()
        total = np.maximum(np.asarray(weighted.sum(axis=1)).ravel(), 1e-300)
        self.spring_mean = weighted.multiply(1.0 / total[:, None]).tocsr()
        self._springs_of_samples, self._nodes_of_springs = s.to_springs.T.tocsr(), s.middles.T.tocsr()
        self._rows = {name: s.to_springs @ parameters.row(name) for name in EDGE_PARAMETERS}
        self.at_samples = self._at_samples()
        self.shape = model.knife.shape()
        count = len(s)
        self._point, self._velocity, self._force = (zeros(count, wp.vec3d) for _ in range(3))
        self._area, self._energy, self._drag_power = (zeros(count, wp.float64) for _ in range(3))
        self._law = {name: zeros(count, wp.float64) for name in LAW_ARRAYS}
        self._passed, self._severed, self._passed_out = (zeros(count, wp.float64) for _ in range(3))
        given = [self.shape, self._area, self._point, self._velocity, self._passed]
        given += self._law.values()
        self._pays = self._recorded(edge.edge_force, [*given, self._force, self._drag_power])
        given = [self.shape, self._point, self._passed]
        self._passing = self._recorded(edge.edge_passes, [*given, self._passed_out, self._severed])
        given = [self._area, self._passed, *self._law.values()]
        self._paid = self._recorded(edge.edge_energy, [*given, self._energy])

    def _recorded(self, kernel: wp.Kernel, arguments: list[Any]) -> wp.Launch:
        """Record a launch over all samples for repeated use."""
        return wp.launch(
            kernel, dim=len(self.samples), inputs=arguments, device=self._area.device, record_cmd=True
        )

    @property
    def untouched(self) -> np.ndarray:
        """Return the largest depth of every sample before the cut [m], shape [sample_count]."""
        return np.zeros(len(self.samples))

    def load(self, ahead: np.ndarray, pose: np.ndarray, velocity: np.ndarray, passed: np.ndarray) -> EdgeLoad:
        """Compute the force of a step from predicted positions [m], and pose and velocity of the knife at its end.

        pose: position [m] and pitch [rad]; velocity: its rate; each of shape [4].
        """
        point, pitch = self.samples.places(ahead) - pose[:3], float(pose[3])
        above = turned(point, -pitch)[:, 1] > 0.0  # the edge is nowhere lower than in its middle
        paying = np.flatnonzero(above & (passed < PAID_AFTER * self.at_samples.rise))
        load = EdgeLoad(np.zeros_like(point), point, pitch, velocity, paying, 0.0)
        local, speed = load.local()
        count = len(paying)
        upload(self._area, self.samples.area[paying])
        upload(self._point, local)
        upload(self._velocity, speed)
        upload(self._passed, passed[paying])
        for name, array in self._law.items():
            upload(array, getattr(self.at_samples, name)[paying])
        if count:
            self._pays.set_dim(count)
            self._pays.launch()
        load.force[paying] = turned(host(self._force)[:count], pitch)
        return replace(load, drag_power_w=float(host(self._drag_power)[:count].sum()))

    def on_nodes(self, load: EdgeLoad) -> np.ndarray:
        """Return the same force on the free nodes [N], shape [node_count, 3]."""
        nodal = self.to_nodes(load.force)
        nodal[self._fixed] = 0.0
        return nodal

    def to_nodes(self, at_samples: np.ndarray) -> np.ndarray:
        """Map values at the samples, [sample_count, ...], to their nodes: the transpose of `places`."""
        flat = self._nodes_of_springs @ (self._springs_of_samples @ at_samples.reshape(len(self.samples), -1))
        return flat.reshape(-1, *at_samples.shape[1:])

    def passes(self, x: np.ndarray, pose: np.ndarray, passed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return largest depths [m] and spring stiffness [N/m] after a step that ended with x [m] and pose [m, rad].

        Shapes [sample_count] and [spring_count]; the stiffness is per reference area.
        """
        upload(self._point, turned(self.samples.places(x) - pose[:3], -float(pose[3])))
        upload(self._passed, passed)
        self._passing.launch()
        remaining = 1.0 - self.spring_mean @ host(self._severed)
        return host(self._passed_out).copy(), self.initial * np.maximum(0.0, remaining)

    def energy(self, passed: np.ndarray) -> float:
        """Return the work of fracture so far [J], without what drag dissipates."""
        upload(self._area, self.samples.area)
        upload(self._passed, passed)
        for name, array in self._law.items():
            upload(array, getattr(self.at_samples, name))
        self._paid.launch()
        return float(host(self._energy).sum())

    def _at_samples(self) -> _EdgeParameters:
        rows = self._rows
        share = self.samples.skin_above * np.exp(-self.samples.skin_distance / rows["skin_depth"])
        skin, fields = rows["skin_toughness"] * share, self._fields
        if fields is None:
            toughness = rows["edge_toughness"] + skin
            return _EdgeParameters(toughness, rows["edge_rise"], rows["edge_press"], rows["edge_drag"], share)
        press, drag = (
            fields.own[name][0] * rows[f"edge_{name}"] + fields.own[name][1] for name in ("press", "drag")
        )
        worst = int(np.argmax(press + drag))
        if press[worst] + drag[worst] > 1.0 + 1e-9:
            raise InputError(
                f"regions: press {press[worst]:g} + drag {drag[worst]:g} is more than 1 where a region replaces one "
                "share and takes the other from the flesh. The slice share must not be negative. State both shares of "
                "the region."
            )
        toughness = rows["edge_toughness"] * fields.toughness + skin
        return _EdgeParameters(toughness, rows["edge_rise"], press, drag, share)

    def spring_gradients(self, bars: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the gradients in the spring parameters by name, given those at the samples.

        bars: by the names in LAW_ARRAYS, each of shape [sample_count, columns].
        """
        rows, share = self._rows, self.at_samples.skin_share[:, None]
        depth = rows["skin_depth"][:, None]
        near = np.where(share > 0.0, self.samples.skin_distance[:, None], 0.0)
        skin = bars["toughness"] * share
        fields = self._fields
        inner = {name: bars[name] for name in ("toughness", "press", "drag")}
        if fields is not None:
            ratios = {"toughness": fields.toughness} | {
                name: flesh for name, (flesh, _) in fields.own.items()
            }
            inner = {name: bars[name] * ratio[:, None] for name, ratio in ratios.items()}
        at_samples = {
            "edge_toughness": inner["toughness"],
            "edge_rise": bars["rise"],
            "edge_press": inner["press"],
            "edge_drag": inner["drag"],
            "skin_toughness": skin,
            "skin_depth": skin * rows["skin_toughness"][:, None] * near / depth**2,
        }
        back = self.samples.to_springs.T
        return {name: back @ bar for name, bar in at_samples.items()}

    def anatomy_gradients(self, bars: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the gradients in toughness ratio and shares of the regions, and in the grain's ratios, by name.

        Shapes [region_count, columns] and [3, columns]; empty without anatomy. bars: as in `spring_gradients`.
        """
        fields = self._fields
        if fields is None:
            return {}
        scaled = bars["toughness"] * self._rows["edge_toughness"][:, None]
        return {
            "toughness_ratio": fields.shares.T @ scaled,
            "press": fields.shares.T @ bars["press"],
            "drag": fields.shares.T @ bars["drag"],
            "grain": fields.grain.T @ scaled,
        }
