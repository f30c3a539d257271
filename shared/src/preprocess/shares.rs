//! Shares of the columns and of the mean in the squared length of rows.

use crate::wording::percent;

/// Share above which the mean is called dominant.
pub const DOMINANT_MEAN_SHARE: f64 = 0.5;

/// Share above which one of `p` columns is called dominant: half-way from equal shares to all. Of two columns one always
/// has half.
pub fn dominant_column_share(p: usize) -> f64 {
    (1.0 + 1.0 / p as f64) / 2.0
}

/// Shares of `E‖x‖²`, the trace of `E xxᵀ`.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthShares {
    /// `E xⱼ²/E‖x‖²`, p shares that sum to 1; all 0 if every row is 0.
    pub columns: Vec<f64>,
    /// `‖E x‖²/E‖x‖²`, 0 to 1.
    pub mean: f64,
}

impl LengthShares {
    /// Computes the shares of rows of dimension `p`, each with its weight.
    pub fn new<R: AsRef<[f64]>>(p: usize, rows: impl IntoIterator<Item = (f64, R)>) -> Self {
        let (mut sums, mut squares, mut n) = (vec![0.0_f64; p], vec![0.0_f64; p], 0.0);
        for (weight, row) in rows {
            n += weight;
            for ((x, sum), square) in row.as_ref().iter().zip(&mut sums).zip(&mut squares) {
                *sum += weight * x;
                *square += weight * x * x;
            }
        }
        let n = if n > 0.0 { n } else { 1.0 };
        let means: Vec<f64> = sums.into_iter().map(|sum| (sum / n) * (sum / n)).collect();
        let squares: Vec<f64> = squares.into_iter().map(|s| s / n).collect();
        Self::from_moments(&means, &squares)
    }

    /// Computes the shares from `(E xⱼ)²` and `E xⱼ²` of each column.
    pub fn from_moments(squared_means: &[f64], mean_squares: &[f64]) -> Self {
        let total: f64 = mean_squares.iter().sum();
        let total = if total > 0.0 { total } else { 1.0 };
        Self {
            mean: (squared_means.iter().sum::<f64>() / total).min(1.0),
            columns: mean_squares.iter().map(|x| x / total).collect(),
        }
    }

    /// The columns with the largest shares, at most `count`, largest first.
    fn largest(&self, count: usize) -> Vec<(usize, f64)> {
        let mut all: Vec<(usize, f64)> = self.columns.iter().copied().enumerate().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(count);
        all
    }

    /// A sentence for a dominant mean and one for a dominant column, which `name` names; empty without either.
    pub fn warnings(&self, name: impl Fn(usize) -> String) -> Vec<String> {
        let mean = (self.mean > DOMINANT_MEAN_SHARE).then(|| {
            format!(
                "the mean has {} of the squared length: the first component would be the mean",
                percent(self.mean)
            )
        });
        let dominant = dominant_column_share(self.columns.len());
        let columns = self.largest(1).into_iter();
        let column = columns.filter(|(_, share)| *share > dominant);
        let column = column.map(|(column, share)| {
            format!(
                "column {} has {} of the squared length: the first component would be mostly that column",
                name(column),
                percent(share)
            )
        });
        mean.into_iter().chain(column).collect()
    }

    /// One line: the largest columns and the mean.
    pub fn summary(&self, name: impl Fn(usize) -> String) -> String {
        let columns = self.largest(3).into_iter();
        let columns = columns.map(|(column, share)| format!("{} {}", name(column), percent(share)));
        let (columns, mean) = (columns.collect::<Vec<_>>().join(", "), percent(self.mean));
        format!("shares of the squared length: {columns}; the mean's {mean}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_columns_and_mean() {
        let shares = LengthShares::new(2, [(0.5, [3.0, 1.0]), (0.5, [3.0, -1.0])]);
        assert_eq!(shares.columns, [0.9, 0.1]);
        assert_eq!(shares.mean, 0.9);
        let name = |column: usize| ["a", "b"][column].to_owned();
        let both = ["the mean has 90.0 %", "column a has 90.0 %"];
        let warnings = shares.warnings(name);
        assert!(std::iter::zip(&warnings, both).all(|(said, word)| said.contains(word)));
        assert_eq!((warnings.len(), shares.largest(1)), (2, vec![(0, 0.9)]));
        // One of two columns always has half; 69 % is not mostly one.
        let uneven = LengthShares::new(2, [(1.0, [1.5, -1.0]), (1.0, [-1.5, 1.0])]);
        assert_eq!((uneven.mean, uneven.warnings(name)), (0.0, Vec::new()));
        let mean = LengthShares::new(2, [(1.0, [1.0, 1.0]), (3.0, [1.0, 1.0])]).warnings(name);
        assert!(mean.len() == 1 && mean[0].contains("the mean has 100.0 %"));
        assert_eq!(LengthShares::new(1, [(1.0, [0.0])]).columns, [0.0]);
        // Four rows, of which three are alike.
        let weighted = LengthShares::new(2, [(3.0, [1.0, 0.0]), (1.0, [0.0, 3.0])]);
        assert_eq!((weighted.columns, weighted.mean), (vec![0.25, 0.75], 0.375));
    }
}
