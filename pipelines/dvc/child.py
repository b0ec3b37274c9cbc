"""`python -m pipelines.dvc.child ...`: run dvc so that it, and its stages, end when the parent process ends."""

import os

from stages.runtime.errors import PARENT_VARIABLE, die_with_parent

if __name__ == "__main__":
    die_with_parent()
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    from dvc.cli import main

    raise SystemExit(main())
