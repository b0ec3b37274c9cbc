"""Fixed block pattern of the Hessian: the 3x3 block to which each element adds, and launch order of the elements."""

from dataclasses import dataclass

import numpy as np

_TET_PAIRS = ((0, 0), (1, 1), (2, 2), (3, 3), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
"""Order in which four-node elements write their blocks."""


@dataclass(frozen=True)
class BlockPattern:
    """Block-CSR pattern over the free nodes. Block `trash` collects the contributions of fixed nodes."""

    free_index: np.ndarray
    """Row of every node among the free ones, -1 if fixed, shape [node_count]."""
    indptr: np.ndarray
    """Row starts, shape [free_count + 1], int32."""
    indices: np.ndarray
    """Column of every block, sorted in each row, shape [block_count], int32."""
    upper: np.ndarray
    """Blocks above the diagonal, shape [pair_count], int32."""
    lower: np.ndarray
    """Their transposes, shape [pair_count], int32."""

    @property
    def trash(self) -> int:
        """Index of the block that collects the contributions of fixed nodes."""
        return len(self.indices)

    @property
    def free_count(self) -> int:
        """Number of free nodes."""
        return len(self.indptr) - 1

    def first_of(self, copies: int) -> "BlockPattern":
        """Return the pattern of one body, if this is the pattern of `copies` disjoint copies of it."""
        if copies == 1:
            return self
        rows, blocks, pairs = (
            self.free_count // copies,
            len(self.indices) // copies,
            len(self.upper) // copies,
        )
        return BlockPattern(
            self.free_index[: len(self.free_index) // copies],
            self.indptr[: rows + 1],
            self.indices[:blocks],
            self.upper[:pairs],
            self.lower[:pairs],
        )

    def slots(self, row_nodes: np.ndarray, column_nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the upper-triangle block of node pairs, and whether the pair is stored transposed (row > column)."""
        i, j = self.free_index[row_nodes], self.free_index[column_nodes]
        low, high = np.minimum(i, j), np.maximum(i, j)
        free = low >= 0
        row_of_block = np.repeat(np.arange(self.free_count), np.diff(self.indptr))
        keys = row_of_block.astype(np.int64) * self.free_count + self.indices
        pair_key = low.astype(np.int64) * self.free_count + high
        block = np.searchsorted(keys, np.where(free, pair_key, 0))
        return np.where(free, block, self.trash).astype(np.int32), i > j


def block_pattern(elements: list[np.ndarray], fixed: np.ndarray) -> BlockPattern:
    """Build the pattern of all node pairs that share an element.

    elements: node indices, each of shape [element_count, nodes per element]. fixed: shape [node_count], bool.
    """
    free = np.flatnonzero(~fixed)
    free_index = np.full(len(fixed), -1, np.int64)
    free_index[free] = np.arange(len(free))
    keys = [np.arange(len(free), dtype=np.int64) * (len(free) + 1)]
    for nodes in elements:
        k = nodes.shape[1]
        i = free_index[np.repeat(nodes, k, axis=1).ravel()]
        j = free_index[np.tile(nodes, (1, k)).ravel()]
        both = (i >= 0) & (j >= 0)
        keys.append(i[both] * len(free) + j[both])
    unique = np.unique(np.concatenate(keys))
    rows, columns = np.divmod(unique, len(free))
    indptr = np.searchsorted(rows, np.arange(len(free) + 1))
    above = np.flatnonzero(columns > rows)
    below = np.searchsorted(unique, columns[above] * len(free) + rows[above])
    return BlockPattern(
        free_index,
        indptr.astype(np.int32),
        columns.astype(np.int32),
        above.astype(np.int32),
        below.astype(np.int32),
    )


def element_slots(pattern: BlockPattern, nodes: np.ndarray) -> np.ndarray:
    """Return the blocks of four-node elements in the order of _TET_PAIRS, shape [element_count, 10], int32."""
    return np.stack([pattern.slots(nodes[:, a], nodes[:, b])[0] for a, b in _TET_PAIRS], axis=1)


def launch_groups(
    nodes: np.ndarray, *, parallel: bool, copies: int = 1
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Order the elements; return the (first, count) of groups that can run in parallel without sharing a node.

    A device that runs a launch in sequence needs one group. On a parallel one a greedy colouring makes sums over
    elements independent of thread timing, so that results are reproducible bit for bit. copies: number of copies of
    the elements, on separate nodes; all copies of an element run at once.
    """
    count = len(nodes)
    if not parallel:
        return np.arange(count, dtype=np.int32), [(0, count)]
    first = nodes[: count // copies]
    used: list[set[int]] = [set() for _ in range(int(first.max()) + 1)]
    colour = np.empty(len(first), np.int64)
    for e, element in enumerate(first):
        taken = set().union(*(used[n] for n in element))
        c = next(c for c in range(count) if c not in taken)
        colour[e] = c
        for n in element:
            used[n].add(c)
    colour = np.tile(colour, copies)
    order = np.argsort(colour, kind="stable").astype(np.int32)
    sizes = np.bincount(colour)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return order, [(int(first), int(size)) for first, size in zip(starts, sizes, strict=True)]
