"""Two fruits that touch are noticed; fruits with a waist, a stem or a hollow are not taken for two."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.clean.clean import clean, metrics
from stages.clean.components import _cross_sections, _neck_ratio, neck_warning
from stages.clean.scan_file import RawScan
from stages.shared.surface import Surface
from tests.stages.scan_shapes import ball, default_params

RINGS, SECTORS = 120, 48


def turned(radius: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Surface:
    """A closed body of revolution, 80 mm long; `radius` of -1 to 1 in units of 40 mm."""
    along = np.linspace(-1.0, 1.0, RINGS)
    around = 2.0 * np.pi * np.arange(SECTORS) / SECTORS
    circle = np.stack([np.zeros(SECTORS), np.cos(around), np.sin(around)], axis=1)
    rings = circle[None] * radius(along)[:, None, None] + np.array([1.0, 0.0, 0.0]) * along[:, None, None]
    vertices = np.concatenate([rings.reshape(-1, 3), [[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]])
    here = np.arange(RINGS * SECTORS).reshape(RINGS, SECTORS)
    aside = np.roll(here, -1, axis=1)
    low, low_aside, high, high_aside = (part.ravel() for part in (here[:-1], aside[:-1], here[1:], aside[1:]))
    first, last = RINGS * SECTORS, RINGS * SECTORS + 1
    faces = [
        np.stack([low, low_aside, high], axis=1),
        np.stack([high, low_aside, high_aside], axis=1),
        np.stack([np.full(SECTORS, first), aside[0], here[0]], axis=1),
        np.stack([np.full(SECTORS, last), here[-1], aside[-1]], axis=1),
    ]
    return Surface(0.04 * vertices, np.concatenate(faces).astype(np.int32))


def two_spheres(apart: float) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Radius of two equal spheres; at 1 they touch in a point."""
    half = 1.0 / (1.0 + apart)
    return lambda z: np.sqrt(np.maximum(half**2 - (np.abs(z) - apart * half) ** 2, 1e-4))


def pear(z: NDArray[np.float64]) -> NDArray[np.float64]:
    body = 0.8 * np.sqrt(np.maximum(1.0 - z**2, 1e-4))
    return np.where(z < 0.0, body, 0.4 + 0.5 * body)


def apple_with_stem(z: NDArray[np.float64]) -> NDArray[np.float64]:
    body = np.sqrt(np.maximum(0.49 - (z + 0.3) ** 2, 1e-4))
    stem = np.where(z > 0.9, 0.08, 0.04)
    return np.where(z > 0.4, stem, body)


def test_cross_sections_of_a_ball() -> None:
    areas = _cross_sections(ball(0.035))
    assert areas.max() == pytest.approx(np.pi * 0.035**2, rel=0.01)
    assert neck_warning(ball(0.035)) is None


@pytest.mark.parametrize("apart", [1.0, 0.95, 0.8])
def test_two_touching_fruits_are_noticed(apart: float) -> None:
    warning = neck_warning(turned(two_spheres(apart)))
    assert warning is not None and "One scan must show one fruit" in warning


@pytest.mark.parametrize("radius", [pear, apple_with_stem, two_spheres(0.5)])
def test_a_single_fruit_is_not(radius: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
    assert _neck_ratio(turned(radius)) > 0.7


def test_the_warning_is_among_the_figures_of_a_cleaned_scan() -> None:
    body = turned(two_spheres(0.95))
    result = clean(RawScan(body.vertices, body.faces, "ply"), default_params().clean)
    assert metrics(result, "apple")["warning"] == neck_warning(result.surface) is not None
