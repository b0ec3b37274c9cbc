"""What pyproject.toml can say only experimentally: a small C library, built by `pip install`.

Optional: where there is no C compiler the installation goes on, and the mesher is not seeded
(docs/pipeline.md#reproducing).
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension("scan2cut_seeded_random", ["stages/tetrahedralize/seeded_random.c"], optional=True)
    ],
)
