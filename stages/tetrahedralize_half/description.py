"""What DVC and the flow need to know of the stage tetrahedralize_half."""

from stages.runtime.describe import Instance

STAGE = Instance(
    name="tetrahedralize_half",
    of="tetrahedralize",
    reads={"clean": "halve"},
    does="the second cut's body → its tetrahedral mesh",
)
