"""The parameters of a cut before any log of it is seen."""

from collections.abc import Collection

import numpy as np

from stages.calibrate.material_fit.fit import material_unknowns
from stages.calibrate.params import CalibrateParams
from stages.calibrate.unknowns import Values


def nominal_values(params: CalibrateParams, material: str, *, leave_out: Collection[str] = ()) -> Values:
    """The start values; where the material is fitted, with what the library leads to expect of it."""
    values = {name: np.asarray(value, float) for name, value in params.start.items()}
    if params.fit != "material":
        return values
    unknowns = material_unknowns([], material, params, leave_out=leave_out)
    sizes = unknowns.sizes(np.zeros(len(unknowns)))
    return values | {name: np.asarray(size) for name, size in sizes.items()}
