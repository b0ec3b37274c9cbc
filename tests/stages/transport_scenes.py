"""Synthetic cut surfaces and smooth synthetic fields on them, for the tests of transport."""

import numpy as np

from disect_sim.parameters import SPRING_NAMES, SPRING_PARAMETERS
from stages.runtime.params import load_params
from stages.shared.fitting import Bound, make_bound
from stages.transport.description import TransportParams
from stages.transport.plan import SpringSet
from stages.transport.transport import Source
from tests.stages.scan_shapes import PROJECT

SHIPPED: TransportParams = load_params(PROJECT / "params.yaml").transport
BOUNDS: dict[tuple[str, bool], Bound] = {
    (name, skin): make_bound(name, info.low, info.high)
    for name, info in SPRING_PARAMETERS.items()
    for skin in (True, False)
}


def with_params(**changes: object) -> TransportParams:
    return TransportParams.model_validate({**SHIPPED.model_dump(), **changes})


def disc(count: int, seed: int, *, skin_count: int = 20, height: float = 1.0) -> SpringSet:
    """Random springs on a synthetic disc, 6 cm wide and 6 cm times `height` high, with a ring of skin."""
    rng = np.random.default_rng(seed)
    radius, angle = 0.028 * np.sqrt(rng.uniform(size=count)), rng.uniform(0.0, 2.0 * np.pi, count)
    ring = np.linspace(0.0, 2.0 * np.pi, skin_count, endpoint=False) + 0.1 * seed
    inner = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    outer = 0.03 * np.stack([np.cos(ring), np.sin(ring)], axis=1)
    position = (np.concatenate([inner, outer]) + np.array([0.0, 0.03])) * np.array([1.0, height])
    area = rng.uniform(0.5, 1.5, count + skin_count) * 1e-5
    return SpringSet(position, area, np.arange(count + skin_count) >= count)


def field(springs: SpringSet) -> dict[str, np.ndarray]:
    """Smooth values inside the bounds, over the unit box; skin differs from flesh."""
    along, up = springs.in_unit_box.T
    out = {}
    for index, (name, info) in enumerate(SPRING_PARAMETERS.items()):
        phase = np.sin(2.0 * along + index) * np.cos(3.0 * up - index)
        share = np.clip(0.45 + 0.25 * phase + 0.2 * springs.skin, 0.05, 0.95)
        bound = make_bound(name, info.low, info.high)
        if bound.logarithmic:
            out[name] = bound.low * (bound.high / bound.low) ** share
        else:
            out[name] = bound.low + (bound.high - bound.low) * share
    return out


def source_of(
    springs: SpringSet, values: dict[str, np.ndarray] | None = None, *, touched: bool = True
) -> Source:
    values = field(springs) if values is None else values
    assert set(values) == set(SPRING_NAMES)
    return Source(springs, values, BOUNDS, np.full(len(springs.area_m2), touched))
