"""Time of the Earth Mover's plan between two random sets of springs."""

import time

import numpy as np

from stages.transport.plan import SpringSet, transport_plan

COUNTS = (500, 1000, 2000)
SKIN_FRACTION = 0.1


def transport_times() -> dict[int, float]:
    """Springs on either side → time of the exact plan [s]."""
    times = {}
    transport_plan(_springs(10, 0), _springs(10, 1), max_exact=10, entropy=1.0)  # imports what it needs
    for count in COUNTS:
        source, target = _springs(count, 0), _springs(count, 1)
        start = time.perf_counter()
        transport_plan(source, target, max_exact=count, entropy=1.0)
        times[count] = time.perf_counter() - start
    return times


def _springs(count: int, seed: int) -> SpringSet:
    rng = np.random.default_rng(seed)
    area, skin = rng.uniform(0.5e-5, 1.5e-5, count), rng.uniform(size=count) < SKIN_FRACTION
    return SpringSet(rng.uniform(0.0, 0.06, (count, 2)), area, skin)
