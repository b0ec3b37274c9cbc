"""The described knife: blade, holder's tilt, mass and centre of mass, from a file or from section `cut` of params.yaml.

A knife file is complete: `<name>.yaml` in this folder (shipped) or profiles/knife/<name>.yaml of a project. Its content
enters params.yaml or scan.yaml with its name, so that changing it makes results stale. Dimensions without a name need
not be complete: the others are those of the kitchen knife.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disect_sim.knife import Knife, knife_from
from stages.runtime.errors import InputError, did_you_mean
from stages.runtime.files import read_mapping

_FOLDER = Path(__file__).parent
SHIPPED_KNIVES = tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))
"""Names that `cut.knife` may have in every project."""
_STANDARD = "kitchen"
"""The knife whose values replace those that a mapping without a name leaves out."""
_NAME, _ABOUT, _MASS, _COM = "name", "about", "mass_kg", "com_m"
_NOT_BLADE = (_NAME, _ABOUT, _MASS, _COM)
_WEDGE = ("tip_m", "bevel_deg")
_REQUIRED = ("length_m", "height_m", "spine_m", "edge_m", _MASS, _COM)
_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_EDGE_SAMPLES = 81
_HEAVIEST_KG, _FARTHEST_M = 3.0, 1.0
"""Bounds of a tool that one of the arms can hold: payload, and distance of its centre of mass from the flange."""


@dataclass(frozen=True)
class DescribedKnife:
    """A knife with its holder."""

    name: str
    """Empty for dimensions without a name."""
    about: str
    blade: Knife
    mass_kg: float
    """Mass of knife and fixture."""
    com_m: tuple[float, float, float]
    """Their centre of mass in the flange's frame."""

    @property
    def label(self) -> str:
        """Name, and for one that is not shipped a digest of the blade: another blade is another knife."""
        if self.name in SHIPPED_KNIVES:
            return self.name
        blade = json.dumps(asdict(self.blade), sort_keys=True)
        return f"{self.name} [{sha256(blade.encode()).hexdigest()[:8]}]"


def described(knife: str | Mapping[str, Any]) -> DescribedKnife:
    """Return a knife by the name of a shipped file or from a mapping; raise InputError if it is neither."""
    if isinstance(knife, str):
        if knife not in SHIPPED_KNIVES:
            raise InputError(
                f"knife: {knife[:80]!r} is not a known knife.{did_you_mean(knife, SHIPPED_KNIVES)} Known: "
                f"{', '.join(SHIPPED_KNIVES)}; those of a project are chosen with --set cut.knife=NAME or in "
                "settings.yaml ('scan2cut knife' lists them). Choose one, or give its dimensions (length_m, height_m, "
                "spine_m, edge_m, bevel_deg)."
            )
        knife = read_knife_file(_FOLDER / f"{knife}.yaml")
    blade = knife_from({str(key): value for key, value in knife.items() if key not in _NOT_BLADE})
    name = knife.get(_NAME, "")
    if _NAME in knife and not (isinstance(name, str) and _NAME_PATTERN.fullmatch(name)):
        raise InputError(
            f"knife: {_NAME} is {str(name)[:80]!r}. It must have 1 to 40 characters of a-z, 0-9, _ and -. Correct it."
        )
    standard = {} if _MASS in knife and _COM in knife else read_mapping(_FOLDER / f"{_STANDARD}.yaml")
    mass, com = knife.get(_MASS, standard.get(_MASS)), knife.get(_COM, standard.get(_COM))
    if not (_is_number(mass) and 0.0 < mass <= _HEAVIEST_KG):
        raise InputError(
            f"knife: {_MASS} is {str(mass)[:80]!r}. It must be a number above 0 and up to {_HEAVIEST_KG:g} kg. Weigh "
            "knife and fixture."
        )
    if not (
        isinstance(com, list | tuple)
        and len(com) == 3
        and all(_is_number(v) and abs(v) <= _FARTHEST_M for v in com)
    ):
        raise InputError(
            f"knife: {_COM} is {str(com)[:80]!r}. It must be [x, y, z] in the flange's frame, in metres. Balance knife "
            "and fixture on an edge (docs/workspace.md)."
        )
    x, y, z = map(float, com)
    return DescribedKnife(name, str(knife.get(_ABOUT, "")), blade, float(mass), (x, y, z))


def read_knife_file(path: Path) -> dict[str, Any]:
    """Return the content of a knife file, with its name; raise InputError if a number is missing or wrong."""
    content = read_mapping(path)
    if content.get(_NAME, path.stem) != path.stem:
        raise InputError(
            f"{path}: {_NAME} is {str(content[_NAME])[:80]!r}. It must be the file's, {path.stem}. Remove it or rename "
            "the file."
        )
    missing = [key for key in _REQUIRED if content.get(key) is None]
    if not any(content.get(key) is not None for key in _WEDGE):
        missing.append(" or ".join(_WEDGE))
    if missing:
        raise InputError(
            f"{path}: {', '.join(missing)} not given. A knife file has every number, because loads and forces rest on "
            "them. Measure (docs/workspace.md shows how) and add it."
        )
    knife = {_NAME: path.stem, **content}
    try:
        described(knife)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return knife


def edge_points(blade: Knife) -> NDArray[np.float64]:
    """Return points of the edge from end to end in its holder [m], shape [n, 3]; of a straight one its ends."""
    half = 0.5 * blade.length_m
    curved = blade.edge_curve or blade.belly_radius_m is not None
    along = np.linspace(-half, half, _EDGE_SAMPLES if curved else 2)
    height = blade.edge_height_m(along) if curved else np.zeros(2)
    c, s = np.cos(blade.tilt_rad), np.sin(blade.tilt_rad)
    return np.stack([np.zeros_like(along), height * c - along * s, height * s + along * c], axis=1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
