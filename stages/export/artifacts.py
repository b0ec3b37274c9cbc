"""What the stage export writes."""

from stages.runtime.describe import folder, metrics, picture

ARTIFACTS = (
    folder(
        "export/cut",
        "the cut for the robot, in the subfolder `certified` or, with REASON.txt, `refused`; files: docs/export.md",
    ),
    metrics(
        "export",
        "the certificate's verdict, where the files are, and how far the motion is inside its limits",
    ),
    picture(
        "export", "the knife's track over the fruit, the joints against their limits, the predicted force"
    ),
)
