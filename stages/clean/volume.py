"""A volume that no single fruit has: the mark of two in one scan, or of a wrong unit."""

from disect_sim.materials import LARGE_M3

FAR_ABOVE = 1.3
"""Over a large one of its kind: shops hardly sell such."""


def volume_warning(volume_m3: float, material: str) -> str | None:
    """A sentence if the body is far larger than what its material usually is; None otherwise."""
    large = LARGE_M3[material]
    if volume_m3 <= FAR_ABOVE * large:
        return None
    return (
        f"The body has {1e6 * volume_m3:.0f} cm³, a large {material} {1e6 * large:.0f}. One scan must show one fruit, "
        "in its unit and under its name. Look at clean/preview.png: if there are two, part them and scan one; else "
        "correct clean.unit or the material."
    )
