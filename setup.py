"""What pyproject.toml can say only experimentally: a small C library, and files of the root in the wheel.

The library is optional: where there is no C compiler the installation goes on, and the mesher is not seeded
(docs/pipeline.md#reproducing).
"""

import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

SHIPPED = (
    "params.yaml",
    "dvc.yaml",
    ".dvcignore",
    "data/.gitignore",
    *map(str, Path("data/sample").glob("synthetic_*")),
)
"""Files of the repository's root that `scan2cut init` and `scan2cut sample` need."""


class BuildWithShipped(build_py):
    """Copy the shipped files into the package `pipelines` of a wheel."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if not getattr(self, "editable_mode", False):
            for name in SHIPPED:
                target = Path(self.build_lib) / "pipelines" / "shipped" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(name, target)


setup(
    cmdclass={"build_py": BuildWithShipped},
    ext_modules=[
        Extension("scan2cut_seeded_random", ["stages/tetrahedralize/seeded_random.c"], optional=True)
    ],
)
