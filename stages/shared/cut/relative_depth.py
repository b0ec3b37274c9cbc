"""How deep a spring lies in its fruit: the coordinate of everything that varies from top to bottom."""

import numpy as np
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh


def relative_depth(mesh: CutMesh) -> NDArray[np.float64]:
    """Of every spring below the top of the cut face, as a share of its height, shape [spring_count]."""
    height = mesh.virtual_positions()[mesh.spring_virtual[:, 0], 1]
    low, top = float(height.min()), float(height.max())
    out: NDArray[np.float64] = (top - height) / (top - low)
    return out
