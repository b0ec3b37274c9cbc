"""What a shell offers after the tab key: scans, stages, robots, materials. Nothing heavy is imported here."""

from disect_sim.errors import InputError
from pipelines.scans.project import Project, find_project


def _project() -> Project | None:
    try:
        return find_project()
    except InputError:
        return None


def scan_ids(incomplete: str) -> list[str]:
    """Ids of the registered scans."""
    project = _project()
    return [] if project is None else [name for name in project.scan_ids() if name.startswith(incomplete)]


def stage_names(incomplete: str) -> list[str]:
    """Stages in the order in which they run."""
    from pipelines.dvc.template import read_template

    project = _project()
    entries = () if project is None else read_template(project.template)
    return [entry.name for entry in entries if entry.name.startswith(incomplete)]


def robots(incomplete: str) -> list[str]:
    """Robots with a file in stages/shared/robots."""
    from stages.shared.robots.names import ROBOTS

    return [name for name in ROBOTS if name.startswith(incomplete)]


def materials(incomplete: str) -> list[str]:
    """Materials of the simulator."""
    from disect_sim.materials import MATERIALS

    return [name for name in MATERIALS if name.startswith(incomplete)]
