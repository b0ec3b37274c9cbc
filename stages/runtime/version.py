"""Version of the runtime's file formats.

Of stages/runtime DVC tracks only the value of ARTIFACT_FORMAT, so that a changed comment or message leaves results
fresh. Raise it when a change of the runtime alters the bytes of artifacts; all stages of all scans then run again.
"""

ARTIFACT_FORMAT = 2
