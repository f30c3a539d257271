//! Where Krylov spaces start.

use nalgebra::{DMatrix, DVector};

/// Unit start vectors that depend on nothing: the same matrix gives the same digits.
#[derive(Debug)]
pub struct StartVectors {
    state: u64,
}

impl Default for StartVectors {
    fn default() -> Self {
        Self {
            state: 0x9E37_79B9_7F4A_7C15,
        }
    }
}

impl StartVectors {
    /// The next start vector, of p numbers.
    pub fn draw(&mut self, p: usize) -> DVector<f64> {
        let vector = DVector::from_fn(p, |_, _| {
            // splitmix64: enough to be in general position to any eigenvector.
            self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            (z >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        });
        let norm = vector.norm();
        vector / norm
    }

    /// `p × width`, drawn column by column.
    pub fn block(&mut self, p: usize, width: usize) -> DMatrix<f64> {
        let mut block = DMatrix::zeros(p, width);
        for mut column in block.column_iter_mut() {
            column.copy_from(&self.draw(p));
        }
        block
    }
}
