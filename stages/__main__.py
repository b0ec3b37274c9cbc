"""`python -m stages STAGE data/scans/ID` runs one stage of one scan."""

from stages.runtime.stage_main import main

if __name__ == "__main__":
    main()
