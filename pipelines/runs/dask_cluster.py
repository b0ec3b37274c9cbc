"""A Dask cluster as the place where stages run; needs the extra `dask`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from disect_sim.errors import InputError
from pipelines.dvc.clone import Source, find_source
from pipelines.scans.project import Project

LOCAL = "local"


@dataclass(frozen=True)
class Cluster:
    """A scheduler that answers, and where its workers get code and data from."""

    address: str
    source: Source

    def task_runner(self) -> Any:
        """Prefect's task runner for this cluster."""
        from prefect_dask import DaskTaskRunner

        return DaskTaskRunner(address=self.address)


@contextmanager
def dask_cluster(
    project: Project, address: str | None, repository: str | None, workers: int
) -> Iterator[Cluster | None]:
    """The cluster at the address, or one on this machine with a process per worker; None gives none."""
    if address is None:
        yield None
        return
    try:
        from distributed import LocalCluster
    except ImportError as error:
        raise InputError(
            "--dask needs dask and prefect-dask, which are not installed. Install them: pip install '.[dask]'."
        ) from error
    source = find_source(project, repository)
    if address != LOCAL:
        yield Cluster(address, source)
        return
    with LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield Cluster(cluster.scheduler_address, source)
