//! The rungs that a number is compared with.

/// Rungs evenly spaced over an interval, half a space from its ends. A question compares a cell with a comb, the pair of
/// rung k and the rung half the ladder above it.
///
/// ```
/// use eigenveil_shared::mechanism::randomised_response::Ladder;
/// let ladder = Ladder::of_range(0.0, 24.0);
/// assert_eq!((ladder.combs(), ladder.comb(0), ladder.comb(11)), (12, [0.5, 12.5], [11.5, 23.5]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ladder {
    from: f64,
    to: f64,
    rungs: u8,
}

impl Ladder {
    /// The 24 rungs of a stated range, in the first round.
    pub fn of_range(lo: f64, hi: f64) -> Self {
        let (from, to, rungs) = (lo, hi, 24);
        Self { from, to, rungs }
    }

    /// The twelve rungs of the interval in which the first round has found most values, in the second round.
    pub fn within(from: f64, to: f64) -> Self {
        let rungs = 12;
        Self { from, to, rungs }
    }

    /// Number of combs.
    pub fn combs(self) -> u8 {
        self.rungs / 2
    }

    /// The rungs, ascending.
    pub fn rungs(self) -> impl Iterator<Item = f64> {
        (0..self.rungs).map(move |k| self.rung(k))
    }

    /// The lower and the upper rung of comb `comb`, from 0.
    pub fn comb(self, comb: u8) -> [f64; 2] {
        [self.rung(comb), self.rung(comb + self.combs())]
    }

    fn rung(self, k: u8) -> f64 {
        self.from + (f64::from(k) + 0.5) * (self.to - self.from) / f64::from(self.rungs)
    }
}
