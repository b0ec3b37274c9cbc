"""Values of the target's springs: barycentric combinations in the free numbers that the fit sought."""

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from disect_sim.errors import InputError
from disect_sim.parameters import SPRING_NAMES
from stages.shared.fitting.bounded import Bound
from stages.transport.spring_set import Flags, Floats

Bounds = Mapping[tuple[str, bool], Bound]
"""(parameter, is skin) → its range."""
Values = dict[str, Floats]
"""Parameter → one value per spring, shape [spring_count]."""


def combine(
    weights: sp.csr_array,
    values: Mapping[str, Floats],
    bounds: Bounds,
    source_skin: Flags,
    target_skin: Flags,
) -> Values:
    """Every target's values from those of its sources.

    Averages are taken in the free numbers of the fit, where any combination is inside the bounds. The result is kept
    between the smallest and the largest of a target's sources, which it is anyway but for rounding and for values
    that stand on a bound (or, if they are constants, beyond one): equal sources give that value to the bit.

    Args:
        weights: shares of the sources [-], shape [target_count, source_count]; each row sums to one.
        values: parameter → value of each source, shape [source_count].
        bounds: ranges of the parameters.
        source_skin: True for sources in the skin, shape [source_count].
        target_skin: True for targets in the skin, shape [target_count].
    """
    out = {}
    for name in SPRING_NAMES:
        value = values[name]
        if not np.isfinite(value).all():
            raise InputError(
                f"calibrate/parameters: {name} has values that are NaN or infinite. All must be finite. Run the stage "
                "calibrate again."
            )
        mixed = np.empty(len(target_skin))
        free = np.empty(len(source_skin))
        for skin in (True, False):
            free[source_skin == skin] = (
                bounds[name, skin].free(torch.as_tensor(value[source_skin == skin])).numpy()
            )
        average = torch.as_tensor(weights @ free)
        for skin in (True, False):
            mixed[target_skin == skin] = bounds[name, skin].value(average[target_skin == skin]).numpy()
        out[name] = np.clip(mixed, *_range_of_sources(weights, value))
    return out


def average_weights(mass: Floats, source_skin: Flags, target_skin: Flags) -> sp.csr_array:
    """Weights that give every target the average of all sources of its kind: the baseline of the comparison.

    Each row holds the sources' masses [-] (shape [source_count]) of the same kind, or of all if there are none.
    """
    rows = []
    for skin in target_skin:
        same = source_skin == skin
        row = np.where(same, mass, 0.0) if same.any() else mass
        rows.append(row / row.sum())
    return sp.csr_array(np.array(rows))


def _range_of_sources(
    weights: sp.csr_array, value: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Smallest and largest value among each target's sources, shapes [target_count]."""
    taken = value[weights.indices]
    return (
        np.minimum.reduceat(taken, weights.indptr[:-1]),
        np.maximum.reduceat(taken, weights.indptr[:-1]),
    )
