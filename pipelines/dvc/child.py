"""`python -m pipelines.dvc.child ...`: dvc that dies with the process that started it, and whose stages die with it."""

import os

from stages.runtime.errors import PARENT_VARIABLE, die_with_parent

if __name__ == "__main__":
    die_with_parent()
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    from dvc.cli import main

    raise SystemExit(main())
