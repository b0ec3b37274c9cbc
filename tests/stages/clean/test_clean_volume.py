"""A body far larger than its material usually is, as two fruits are that overlap without a neck."""

import numpy as np
import pytest

from disect_sim.parameters import LARGE_M3, MATERIALS
from stages.clean.clean import _FAR_ABOVE, _volume_warning, clean, metrics
from stages.clean.scan_file import RawScan
from tests.stages.scan_shapes import ball, default_params


def test_every_material_has_a_usual_size() -> None:
    assert LARGE_M3.keys() == MATERIALS.keys()


@pytest.mark.parametrize("material", MATERIALS)
def test_only_far_above_a_large_one_is_it_said(material: str) -> None:
    limit = _FAR_ABOVE * LARGE_M3[material]
    assert _volume_warning(0.999 * limit, material) is None
    warning = _volume_warning(1.001 * limit, material)
    assert warning is not None and f"a large {material} {1e6 * LARGE_M3[material]:.0f}" in warning


@pytest.mark.parametrize(("volume_m3", "is_said"), [(163e-6, False), (403e-6, True)])
def test_the_warning_is_among_the_figures_of_a_cleaned_scan(volume_m3: float, is_said: bool) -> None:
    """163 cm³: the sample; 403: two apples that were once taken for one. A ball has no neck."""
    body = ball(float(np.cbrt(0.75 * volume_m3 / np.pi)))
    result = clean(RawScan(body.vertices, body.faces, "ply"), default_params().clean)
    said = metrics(result, "apple")["warning"]
    assert said == _volume_warning(result.surface.volume_m3, "apple")
    assert (said is not None) == is_said
