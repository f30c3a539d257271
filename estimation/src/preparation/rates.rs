//! Shares of answers that need no fit: yes, a category, missing.

/// The randomised answers to a question without rungs.
pub(super) struct Rates {
    counts: Vec<u64>,
    total: f64,
    /// (e^ε + B − 1)/(e^ε − 1).
    factor: f64,
    /// 1/(e^ε − 1).
    offset: f64,
}

/// An estimated share of the people, which may lie a little outside 0 to 1, and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) share: f64,
    pub(super) error: f64,
}

impl Rates {
    pub(super) fn new(counts: Vec<u64>, epsilon: f64) -> Self {
        // e^ε − 1 without cancellation.
        let odds_less_one = libm::expm1(epsilon);
        let total = counts.iter().sum::<u64>() as f64;
        Self {
            factor: (odds_less_one + counts.len() as f64) / odds_less_one,
            offset: odds_less_one.recip(),
            counts,
            total,
        }
    }

    /// The share of the people whose true answer it is.
    pub(super) fn of(&self, answer: usize) -> Rate {
        if self.total == 0.0 {
            // Nothing is known, and no answer is likelier than another.
            return Rate {
                share: 1.0 / self.counts.len() as f64,
                error: 1.0,
            };
        }
        let share = self.counts[answer] as f64 / self.total * self.factor - self.offset;
        // At the share that there can be.
        let lambda = (share.clamp(0.0, 1.0) + self.offset) / self.factor;
        Rate {
            share,
            error: self.factor * (lambda * (1.0 - lambda) / self.total).sqrt(),
        }
    }
}
