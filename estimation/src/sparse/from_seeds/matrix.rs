//! S̃ in single precision: one triangle of f32, where memory is the limit.

use eigenveil_shared::{Error, Result, mechanism::double_cap::DoubleCapParameters};
use nalgebra::DMatrix;

use super::source::{BLOCK, Directions, SeedSource};
use crate::{
    cancel::Cancel,
    linalg::{Panels, parallel_for_each},
};

/// The mean of n decoded `double-cap` reports `c(ggᵀ − I/p)`: the triangle in f32, the diagonal and the trace in f64.
///
/// Directions are rounded to f32 and added up in blocks of [`BLOCK`], so that each term of an entry is rounded
/// `B + n/B` times: the sum is off by at most `(B + n/B + 2)·u·c·E|gᵢgⱼ|`, u = 2⁻²⁴, which in standard deviations
/// `c/(p√n)` of the noise is below `0.64·√n·(B + n/B + 2)·u`: 0.8 % at n = 10⁵, 0.16 at 10⁶. Roundings are not all in
/// one direction: measured, they are some thousand times less (a test compares).
pub(super) struct LargeMatrix {
    lower: Panels<f32>,
    diagonal: Vec<f64>,
    n: u64,
}

impl LargeMatrix {
    /// One pass over the seeds, into panels of this width; `cancel` is checked once a block.
    pub(super) fn gather(
        source: &(impl SeedSource + ?Sized),
        parameters: &DoubleCapParameters,
        width: usize,
        cancel: Cancel<'_>,
    ) -> Result<Self> {
        let p = parameters.dimension;
        let mut moment = Self {
            lower: Panels::zeros(p, width),
            diagonal: vec![0.0; p],
            n: 0,
        };
        let mut directions = Directions::new(p, None);
        let mut waiting = Vec::with_capacity(BLOCK);
        source.pass(&mut |_, seeds| {
            for seed in seeds {
                waiting.push(*seed);
                if waiting.len() == BLOCK {
                    cancel.check()?;
                    moment.add(&mut directions, &waiting);
                    waiting.clear();
                }
            }
            Ok(())
        })?;
        moment.add(&mut directions, &waiting);
        if moment.n == 0 {
            return Err(Error::estimate_failed(
                "there is no report to estimate from (n = 0)",
            ));
        }
        moment.decode(parameters);
        Ok(moment)
    }

    fn add(&mut self, directions: &mut Directions<f32>, seeds: &[[u8; 16]]) {
        directions.fill(seeds, |z| z as f32);
        self.lower.add_gram(&directions.block, seeds.len());
        for column in directions.block.column_iter().take(seeds.len()) {
            for (sum, g) in self.diagonal.iter_mut().zip(column.iter()) {
                *sum += f64::from(*g) * f64::from(*g);
            }
        }
        self.n += seeds.len() as u64;
    }

    /// From `Σ ggᵀ` to `c(Σ ggᵀ/n − I/p)`.
    fn decode(&mut self, parameters: &DoubleCapParameters) {
        let p = self.dimension() as f64;
        let scale = parameters.scale;
        for sum in &mut self.diagonal {
            *sum = scale * (*sum / self.n as f64 - 1.0 / p);
        }
        let factor = (scale / self.n as f64) as f32;
        parallel_for_each(self.lower.iter_mut(), |(_, panel)| *panel *= factor);
    }

    /// A symmetric matrix as if it were the mean of n reports.
    #[cfg(test)]
    pub(super) fn from_dense(matrix: &DMatrix<f64>, n: u64, width: usize) -> Self {
        let mut lower = Panels::zeros(matrix.nrows(), width);
        for (from, panel) in lower.iter_mut() {
            let (rows, columns) = panel.shape();
            *panel = matrix.view((from, from), (rows, columns)).map(|x| x as f32);
        }
        Self {
            lower,
            diagonal: matrix.diagonal().iter().copied().collect(),
            n,
        }
    }

    pub(super) fn dimension(&self) -> usize {
        self.lower.dimension()
    }

    /// Reports averaged.
    pub(super) fn n(&self) -> u64 {
        self.n
    }

    /// tr S̃: zero up to rounding.
    pub(super) fn trace(&self) -> f64 {
        self.diagonal.iter().sum()
    }

    pub(super) fn diagonal(&self) -> &[f64] {
        &self.diagonal
    }

    /// The panels; their diagonal entries are not used.
    pub(super) fn panels(&self) -> &Panels<f32> {
        &self.lower
    }

    /// Sᵢⱼ.
    pub(super) fn get(&self, i: usize, j: usize) -> f64 {
        if i == j {
            self.diagonal[i]
        } else {
            f64::from(*self.lower.get(i, j))
        }
    }

    pub(super) fn submatrix(&self, rows: &[usize]) -> DMatrix<f64> {
        DMatrix::from_fn(rows.len(), rows.len(), |a, b| self.get(rows[a], rows[b]))
    }
}
