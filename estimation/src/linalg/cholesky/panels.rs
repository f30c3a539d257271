//! The lower triangle of a large symmetric matrix in column panels: half the memory of a square, and blocks
//! that the kernels and several threads can work on.

use faer::{Accum, MatMut, MatRef, Par, linalg::matmul::matmul};
use nalgebra::DMatrix;

use crate::linalg::{kernels::kernels, parallel_for_each, view, view_mut};

/// Columns of a panel: the updates of rank 256 run at the kernel's full speed.
pub(crate) const PANEL_WIDTH: usize = 256;

/// Panel j holds columns `j·w … (j+1)·w` from their first row `j·w` down, column by column. In the square at
/// its top only the lower triangle counts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Panels<T> {
    dimension: usize,
    width: usize,
    panels: Vec<DMatrix<T>>,
}

impl<T: nalgebra::Scalar + Default> Panels<T> {
    pub(crate) fn zeros(p: usize, width: usize) -> Self {
        let panels = (0..p)
            .step_by(width)
            .map(|from| DMatrix::from_element(p - from, width.min(p - from), T::default()))
            .collect();
        Self {
            dimension: p,
            width,
            panels,
        }
    }

    pub(crate) fn dimension(&self) -> usize {
        self.dimension
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The panels, each with its first row and column.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &DMatrix<T>)> + Send
    where
        T: Sync,
    {
        let width = self.width;
        self.panels
            .iter()
            .enumerate()
            .map(move |(j, panel)| (j * width, panel))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut DMatrix<T>)> + Send
    where
        T: Send,
    {
        let width = self.width;
        self.panels
            .iter_mut()
            .enumerate()
            .map(move |(j, panel)| (j * width, panel))
    }

    /// Panel `j` and those after it.
    pub(crate) fn split_at_mut(
        &mut self,
        j: usize,
    ) -> Option<(&mut DMatrix<T>, &mut [DMatrix<T>])> {
        self.panels.get_mut(j..)?.split_first_mut()
    }

    /// Entry (i, j) of the symmetric matrix.
    pub(crate) fn get(&self, i: usize, j: usize) -> &T {
        let (row, column) = (i.max(j), i.min(j));
        let from = column / self.width * self.width;
        &self.panels[column / self.width][(row - from, column - from)]
    }
}

impl Panels<f32> {
    /// Adds `B·Bᵀ` for the first `columns` columns of `block` (p rows).
    pub(crate) fn add_gram(&mut self, block: &DMatrix<f32>, columns: usize) {
        let block = view(block).subcols(0, columns);
        let p = self.dimension;
        parallel_for_each(self.iter_mut(), |(from, panel)| {
            let rows = block.subrows(from, p - from);
            let top_rows = rows.subrows(0, panel.ncols()).transpose();
            kernels(|| matmul(view_mut(panel), Accum::Add, rows, top_rows, 1.0, Par::Seq));
        });
    }
}

impl<T: nalgebra::Scalar + Default + Sync> Panels<T> {
    /// `A·B` for the symmetric A of these panels' shape that `fill` writes into f64 tiles, a panel at a time (the
    /// lower triangle of the square at the top is enough). Partial products are added in order, so the result does not
    /// depend on the number of threads.
    pub(crate) fn times_filled(
        &self,
        fill: impl Fn(usize, &DMatrix<T>, &mut DMatrix<f64>) + Sync,
        b: &DMatrix<f64>,
    ) -> DMatrix<f64> {
        let mut partial_products = vec![DMatrix::zeros(0, 0); self.panels.len()];
        parallel_for_each(
            self.iter().zip(&mut partial_products),
            |((from, panel), partial_product)| {
                let (rows, width) = panel.shape();
                let mut tile = DMatrix::zeros(rows, width);
                fill(from, panel, &mut tile);
                for c in 0..width {
                    for r in 0..c {
                        tile[(r, c)] = tile[(c, r)];
                    }
                }
                let mut out = DMatrix::zeros(rows, b.ncols());
                let add = |out: MatMut<'_, f64>, left: MatRef<'_, f64>, right: MatRef<'_, f64>| {
                    kernels(|| matmul(out, Accum::Add, left, right, 1.0, Par::Seq));
                };
                let (tile, rows_below) = (view(&tile), rows - width);
                add(view_mut(&mut out), tile, view(b).subrows(from, width));
                let top_rows = view_mut(&mut out).subrows_mut(0, width);
                let lower_block = tile.subrows(width, rows_below).transpose();
                add(
                    top_rows,
                    lower_block,
                    view(b).subrows(from + width, rows_below),
                );
                *partial_product = out;
            },
        );
        let mut sum = DMatrix::zeros(self.dimension, b.ncols());
        for ((from, panel), partial_product) in self.iter().zip(&partial_products) {
            let mut part = sum.rows_mut(from, panel.nrows());
            part += partial_product;
        }
        sum
    }
}

/// Adds rows `from …` of `V·diag(weights)·Vᵀ` to the panel that starts there.
pub(crate) fn add_outer_to_panel(
    panel: &mut DMatrix<f64>,
    from: usize,
    vectors: &DMatrix<f64>,
    weights: &[f64],
) {
    let rows = vectors.rows(from, panel.nrows()).into_owned();
    let mut top_rows = rows.rows(0, panel.ncols()).into_owned();
    for (mut column, &weight) in top_rows.column_iter_mut().zip(weights) {
        column *= weight;
    }
    let (left, right) = (view(&rows), view(&top_rows).transpose());
    kernels(|| matmul(view_mut(panel), Accum::Add, left, right, 1.0, Par::Seq));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gram_matrix_lands_in_its_panels() {
        let p = 23;
        let block = DMatrix::from_fn(p, 4, |i, j| ((i * 5 + j * 3) % 7) as f32 - 3.0);
        let gram = &block * block.transpose();
        for width in [1, 5, 23, 64] {
            let mut panels = Panels::zeros(p, width);
            panels.add_gram(&block, 4);
            panels.add_gram(&block, 0);
            assert_eq!((panels.dimension(), panels.width()), (p, width));
            for i in 0..p {
                for j in 0..p {
                    assert_eq!(*panels.get(i, j), gram[(i, j)]);
                }
            }
            let b = DMatrix::from_fn(p, 3, |i, j| ((i + 7 * j) % 5) as f64 - 2.0);
            let fill = |_: usize, panel: &DMatrix<f32>, tile: &mut DMatrix<f64>| {
                for c in 0..panel.ncols() {
                    for r in c..panel.nrows() {
                        tile[(r, c)] = f64::from(panel[(r, c)]);
                    }
                }
            };
            // Whole numbers: exact.
            let wanted = gram.map(f64::from) * &b;
            assert_eq!(panels.times_filled(fill, &b), wanted);
            let two = crate::linalg::Threads::new(2).unwrap();
            assert_eq!(two.run(|| panels.times_filled(fill, &b)), wanted);
            let outer = &b * DMatrix::from_diagonal(&vec![1.0, -2.0, 0.5].into()) * b.transpose();
            let mut sums = Panels::<f64>::zeros(p, width);
            for (from, panel) in sums.iter_mut() {
                add_outer_to_panel(panel, from, &b, &[1.0, -2.0, 0.5]);
            }
            assert_eq!(*sums.get(p - 1, 0), outer[(p - 1, 0)]);
            assert_eq!(*sums.get(p - 1, p - 1), outer[(p - 1, p - 1)]);
        }
    }
}
