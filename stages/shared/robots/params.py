"""Section `arm` of params.yaml: the robot that cuts, chosen once for the search, the certificate and the files."""

from typing import Annotated, Any

from stages.runtime.named import one_of
from stages.runtime.params_base import SharedSection
from stages.shared.robots.names import ROBOTS, edge_limits


class ArmParams(SharedSection):
    """arm: which robot cuts."""

    robot: Annotated[str, one_of(ROBOTS)]
    """A file of stages/shared/robots."""


def fill_edge_limits(values: Any) -> Any:
    """Values of a section, with the robot's own limits of the edge where they are null."""
    arm = values.get("arm") if isinstance(values, dict) else None
    if not isinstance(arm, ArmParams):
        return values
    return values | {
        key: limit for key, limit in edge_limits(arm.robot).items() if values.get(key, 0) is None
    }
