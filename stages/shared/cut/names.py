"""Names of the artifacts that make up a cut mesh."""


def cut_mesh(stage: str) -> tuple[str, ...]:
    """The tables of the cut mesh that the stage (precut, or an instance of it) writes."""
    return tuple(f"{stage}/{table}" for table in ("nodes", "tets", "virtual_nodes", "springs"))
