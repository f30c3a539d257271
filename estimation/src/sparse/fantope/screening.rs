//! Rows that cannot carry a component together are taken out before the solver starts, exactly.
//!
//! Join two rows when `|S̃ᵢⱼ| > λ`, and let the *blocks* be the connected components. Taking any feasible X and setting
//! its entries between blocks to zero keeps it in the Fantope (the diagonal blocks of `0 ≼ X ≼ I` are again between 0
//! and I) and loses nothing: such an entry adds `S̃ᵢⱼXᵢⱼ − λ|Xᵢⱼ| ≤ 0`. Of the rows that form a block by themselves
//! only the k with the largest diagonal can matter, since `Xᵢᵢ ≤ 1`. So the optimum over the remaining rows is the
//! optimum over all, and with `Zᵢⱼ = S̃ᵢⱼ` between blocks so is its dual bound: `S̃ − Z` is block diagonal there, and
//! no diagonal entry of an omitted row is among its k largest eigenvalues. The same argument splits the graphical lasso
//! (Witten, Friedman & Simon 2011; Mazumder & Hastie 2012).

use nalgebra::DMatrix;

/// The rows that matter and the blocks they fall into.
pub(super) struct Screen {
    pub(super) rows: Vec<usize>,
    /// Block of each remaining row; equal numbers mean one block.
    pub(super) blocks: Vec<usize>,
    /// Whether any two rows are joined; if not, a diagonal X is optimal.
    pub(super) joined: bool,
}

impl Screen {
    pub(super) fn keep_every_row(p: usize) -> Self {
        Self {
            rows: (0..p).collect(),
            blocks: vec![0; p],
            joined: true,
        }
    }

    /// Whether all p rows are one block, so that there is nothing to take out or to split.
    pub(super) fn keeps_every_row(&self, p: usize) -> bool {
        self.rows.len() == p && self.blocks.iter().all(|&block| block == self.blocks[0])
    }

    pub(super) fn new(moment: &DMatrix<f64>, k: usize, lambda: f64) -> Self {
        let p = moment.nrows();
        let mut forest = Forest::new(p);
        for j in 0..p {
            let below = &moment.as_slice()[j * p + j + 1..(j + 1) * p];
            for (chunk, entries) in below.chunks(CHUNK).enumerate() {
                // Comparing only the largest entry of a chunk vectorises, and is enough for most chunks.
                if entries.iter().fold(0.0_f64, |m, e| m.max(e.abs())) <= lambda {
                    continue;
                }
                for (i, entry) in entries.iter().enumerate() {
                    if entry.abs() > lambda {
                        forest.join(j, j + 1 + chunk * CHUNK + i);
                    }
                }
            }
            if forest.trees == 1 {
                return Self::keep_every_row(p);
            }
        }
        let blocks: Vec<usize> = (0..p).map(|row| forest.root(row)).collect();
        let mut sizes = vec![0_usize; p];
        for &block in &blocks {
            sizes[block] += 1;
        }
        let mut alone: Vec<usize> = (0..p).filter(|&row| sizes[blocks[row]] == 1).collect();
        alone.sort_by(|&a, &b| {
            let larger = moment[(b, b)].total_cmp(&moment[(a, a)]);
            larger.then(a.cmp(&b))
        });
        let mut is_kept: Vec<bool> = blocks.iter().map(|&block| sizes[block] > 1).collect();
        for row in alone.into_iter().take(k) {
            is_kept[row] = true;
        }
        let rows: Vec<usize> = (0..p).filter(|&row| is_kept[row]).collect();
        Self {
            blocks: rows.iter().map(|&row| blocks[row]).collect(),
            rows,
            joined: forest.trees < p,
        }
    }

    /// Sets the entries of `matrix` (over the remaining rows) between blocks to zero.
    pub(super) fn pinch(&self, matrix: &mut DMatrix<f64>) {
        if self.keeps_every_row(matrix.nrows()) {
            return;
        }
        for (mut column, mine) in matrix.column_iter_mut().zip(&self.blocks) {
            for (entry, block) in column.iter_mut().zip(&self.blocks) {
                if block != mine {
                    *entry = 0.0;
                }
            }
        }
    }

    /// Writes `matrix`, over the remaining rows, into those entries of `whole` whose rows share a block.
    pub(super) fn embed(&self, matrix: &DMatrix<f64>, whole: &mut DMatrix<f64>) {
        for (b, &column) in self.rows.iter().enumerate() {
            for (a, &row) in self.rows.iter().enumerate() {
                if self.blocks[a] == self.blocks[b] {
                    whole[(row, column)] = matrix[(a, b)];
                }
            }
        }
    }
}

const CHUNK: usize = 64;

/// Union–find with path halving.
struct Forest {
    parent: Vec<usize>,
    trees: usize,
}

impl Forest {
    fn new(size: usize) -> Self {
        Self {
            parent: (0..size).collect(),
            trees: size,
        }
    }

    fn root(&mut self, mut node: usize) -> usize {
        while self.parent[node] != node {
            self.parent[node] = self.parent[self.parent[node]];
            node = self.parent[node];
        }
        node
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.parent[a.max(b)] = a.min(b);
            self.trees -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symmetric(p: usize, entries: &[(usize, usize, f64)]) -> DMatrix<f64> {
        let mut matrix = DMatrix::zeros(p, p);
        for &(i, j, value) in entries {
            (matrix[(i, j)], matrix[(j, i)]) = (value, value);
        }
        matrix
    }

    #[test]
    fn blocks_are_connected_components() {
        let matrix = symmetric(
            7,
            &[
                (0, 3, 2.0),
                (3, 5, -2.0),
                (1, 4, 1.5),
                (2, 6, 1.0),
                (6, 6, 3.0),
                (2, 2, 4.0),
            ],
        );
        let screen = Screen::new(&matrix, 1, 1.0);
        // An entry equal to λ joins nothing; of the lone rows 2 and 6 the larger diagonal stays.
        assert_eq!(screen.rows, [0, 1, 2, 3, 4, 5]);
        assert_eq!(screen.blocks, [0, 1, 2, 0, 1, 0]);
        assert!(screen.joined);
        let none = Screen::new(&matrix, 2, 2.0);
        assert_eq!((none.rows.as_slice(), none.joined), (&[2, 6][..], false));
        assert_eq!(Screen::new(&matrix, 2, 0.5).rows.len(), 7);
        let all = Screen::new(&DMatrix::from_element(5, 5, 1.0), 2, 0.5);
        assert_eq!(
            (all.rows.len(), all.blocks, all.joined),
            (5, vec![0; 5], true)
        );
    }

    /// Rows beyond one chunk, and a chain that is joined back to front.
    #[test]
    fn long_columns_and_chains() {
        let p = 3 * CHUNK + 5;
        let chain: Vec<_> = (1..p).map(|i| (p - i, p - i - 1, 1.0)).collect();
        assert_eq!(Screen::new(&symmetric(p, &chain), 1, 0.9).rows.len(), p);
        let far = Screen::new(&symmetric(p, &[(p - 1, 0, -1.0)]), 1, 0.9);
        assert_eq!(far.rows, [0, 1, p - 1]);
        assert_eq!(far.blocks[0], far.blocks[2]);
        assert_ne!(far.blocks[0], far.blocks[1]);
    }

    #[test]
    fn pinched_and_embedded() {
        let screen = Screen {
            rows: vec![1, 3, 4],
            blocks: vec![1, 1, 4],
            joined: true,
        };
        let mut small = DMatrix::from_element(3, 3, 2.0);
        let mut whole = DMatrix::from_element(5, 5, 7.0);
        screen.embed(&small, &mut whole);
        assert_eq!(
            (whole[(1, 3)], whole[(4, 4)], whole[(1, 4)], whole[(0, 0)]),
            (2.0, 2.0, 7.0, 7.0)
        );
        screen.pinch(&mut small);
        assert_eq!(
            (small[(0, 1)], small[(0, 2)], small[(2, 1)]),
            (2.0, 0.0, 0.0)
        );
    }
}
