"""The version of what the runtime writes.

DVC tracks the value of ARTIFACT_FORMAT and no other line of stages/runtime, so that a changed comment or a better
error message leaves every result fresh. Raise it when a change of the runtime alters the bytes of artifacts on purpose:
every stage of every scan then runs again.
"""

ARTIFACT_FORMAT = 2
