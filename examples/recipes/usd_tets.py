"""The tetrahedral mesh of a scan as USD (UsdGeom.TetMesh), for simulators that read it, e.g. Newton or Isaac Sim.

pip install usd-core
python examples/recipes/usd_tets.py data/scans/SCAN OUT.usda
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq


def write(scan_dir: Path, out: Path) -> int:
    """Write nodes [m], y up, and tets; return the number of tets."""
    from pxr import Gf, Usd, UsdGeom, Vt

    folder = scan_dir / "tetrahedralize"
    nodes = np.array(pq.read_table(folder / "nodes.parquet")["position_m"].to_pylist(), float)
    tets = np.array(pq.read_table(folder / "tets.parquet")["nodes"].to_pylist(), int)
    out.unlink(missing_ok=True)
    stage = Usd.Stage.CreateNew(str(out))
    UsdGeom.SetStageUpAxis(stage, UsdGeom.Tokens.y)
    UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    mesh = UsdGeom.TetMesh.Define(stage, "/fruit")
    mesh.CreatePointsAttr([Gf.Vec3f(*point) for point in nodes])
    mesh.CreateTetVertexIndicesAttr(Vt.Vec4iArray([Gf.Vec4i(*(int(i) for i in tet)) for tet in tets]))
    mesh.CreateSurfaceFaceVertexIndicesAttr(UsdGeom.TetMesh.ComputeSurfaceFaces(mesh))
    mesh.CreateOrientationAttr(UsdGeom.Tokens.rightHanded)
    stage.SetDefaultPrim(mesh.GetPrim())
    stage.GetRootLayer().Save()
    return len(tets)


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]), Path(sys.argv[2]))} tets in {sys.argv[2]}")
