"""Contact laws: which distance to the knife its contact uses. One line per law; see kernels/contact_point.py."""

from dataclasses import dataclass

from disect_sim.laws import choose


@dataclass(frozen=True)
class ContactLaw:
    """A law and what can be asked of it."""

    code: int
    """Number by which kernels/contact_point.py, the only file that asks, tells the laws apart."""
    meaning: str
    differentiable: bool


CONTACT_LAWS = {
    "one_sided": ContactLaw(0, "smooth distance to the flank on the edge's own side", differentiable=True),
    "exact": ContactLaw(1, "the paper's two-sided distance", differentiable=False),
}
DEFAULT_CONTACT_LAW = "one_sided"


def contact_law(name: str) -> ContactLaw:
    """The law of that name; refuses an unknown one."""
    return choose("contact_law", name, CONTACT_LAWS)
