import numpy as np

from disect_sim.cut_mesh import box_mesh, tet_volumes
from disect_sim.virtual_nodes.topology import outer_faces


def test_box_mesh_fills_the_box_with_upright_tets_and_matching_faces():
    nodes, tets = box_mesh((-1.0, 0.0, 2.0), (1.0, 3.0, 2.5), (2, 3, 4))
    volumes = tet_volumes(nodes, tets)
    assert len(tets) == 6 * 2 * 3 * 4
    assert np.allclose(volumes, 2 * 3 * 0.5 / len(tets), rtol=1e-12)
    # Each outer cell face is two triangles; a mismatch inside would add faces.
    assert len(outer_faces(tets)) == 2 * 2 * (2 * 3 + 3 * 4 + 2 * 4)
