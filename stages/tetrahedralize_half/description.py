"""Description of the stage tetrahedralize_half, the second instance of tetrahedralize."""

from stages.runtime.describe import Instance

STAGE = Instance(
    name="tetrahedralize_half",
    of="tetrahedralize",
    reads={"clean": "halve"},
    does="body of the second cut → tetrahedral mesh",
)
