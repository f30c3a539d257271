//! The distribution of a number column: expectation–maximisation over the cells between all rungs.

use eigenveil_shared::{
    mechanism::randomised_response::{Ladder, QuestionKind},
    preparation::{ColumnKind, NumberRange},
};

use super::round::Rounds;

/// Iterations; more change spreads by more than a tenth, in either direction, and none systematically.
const ITERATIONS: usize = 300;
/// A spread over the range is at least this share of it, about half a cell.
const SMALLEST_SPREAD: f64 = 1.0 / 40.0;
/// A cell of the range, and of the second round's interval, as shares of them. A spread over that interval is at least a
/// cell of it: no answer shows a smaller one.
const CELL: f64 = 1.0 / 24.0;
const CELL_OF_SECOND: f64 = 1.0 / 12.0;
/// Smallest share of the people who have a value from which a fit says anything of the values.
const SMALLEST_MASS: f64 = f64::EPSILON;
/// Share of the people beyond the second round's interval from which moments are over the whole range.
const MAX_OUTSIDE: f64 = 0.05;

/// An answer to a comb: the cells that it is true for, and how often it was given.
#[derive(Clone, Debug)]
struct Row {
    from: usize,
    to: usize,
    count: f64,
}

/// The answers about a number column, as a mixture over cells.
#[derive(Clone, Debug)]
pub(super) struct Mixture {
    /// Ends of the cells, ascending: lo, all rungs, hi.
    edges: Vec<f64>,
    /// The interval of the second round.
    within: Option<[f64; 2]>,
    may_be_missing: bool,
    /// So many rows of each comb follow each other.
    answers: usize,
    rows: Vec<Row>,
    /// Probabilities of the true answer and of each other one.
    high: f64,
    low: f64,
}

/// A fitted distribution.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fit {
    /// Share of each cell, among the people who have a value.
    pub(super) cells: Vec<f64>,
    /// Share of the people who have none; exactly 1 if the fit knows of nobody who has one. Then the cells are alike.
    pub(super) missing: f64,
}

/// Mean and standard deviation of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moments {
    pub(super) mean: f64,
    /// `least`, if the fit has a smaller one.
    pub(super) deviation: f64,
    /// A 40th of the range, or a twelfth of the interval of the second round.
    pub(super) least: f64,
    /// Width of a cell.
    pub(super) cell: f64,
    /// The interval they are over; values beyond count as its ends.
    pub(super) interval: [f64; 2],
}

impl Moments {
    /// Whether the deviation is the least one: then all values may lie anywhere in one cell.
    pub(super) fn is_below(self) -> bool {
        self.deviation <= self.least
    }
}

impl Mixture {
    /// The answers about a column; `None` unless it is one of numbers.
    pub(super) fn new(rounds: Rounds<'_>, column: usize) -> Option<Self> {
        let ColumnKind::Number(NumberRange { lo, hi, .. }) = rounds.columns()[column].kind else {
            return None;
        };
        let ladders = rounds.all().filter_map(|round| {
            let question = &round.params().mechanism().questions()[column];
            match question.kind {
                QuestionKind::Number(ladder) => Some((round, ladder)),
                _ => None,
            }
        });
        let ladders: Vec<_> = ladders.collect();
        let rungs = ladders.iter().flat_map(|(_, ladder)| ladder.rungs());
        let mut rungs: Vec<f64> = rungs.collect();
        rungs.sort_by(f64::total_cmp);
        rungs.dedup();
        let question = rounds.question(column);
        let mechanism = rounds.first.params().mechanism();
        let [high, low] = mechanism.probabilities(question.answers());
        let mut rows = Vec::new();
        for (round, ladder) in &ladders {
            for (comb, counts) in (0..ladder.combs()).zip(round.counts_of(column)) {
                let ends = ends_of_answers(&rungs, *ladder, comb);
                let answers = ends.windows(2).zip(counts);
                rows.extend(answers.map(|(cells, count)| Row {
                    from: cells[0],
                    to: cells[1],
                    count: *count as f64,
                }));
            }
        }
        let second = rounds
            .second
            .map(|round| &round.params().columns()[column].kind);
        let within = second.and_then(|kind| match kind {
            ColumnKind::Number(range) => range.within,
            _ => None,
        });
        Some(Self {
            edges: std::iter::once(lo).chain(rungs).chain([hi]).collect(),
            within,
            may_be_missing: question.may_be_missing,
            answers: usize::from(question.answers()),
            rows,
            high,
            low,
        })
    }

    fn range(&self) -> [f64; 2] {
        [self.edges[0], self.edges[self.edges.len() - 1]]
    }

    /// Number of cells, without that of missing values.
    fn cells(&self) -> usize {
        self.edges.len() - 1
    }

    /// Expectation–maximisation from equal shares, without smoothing. An answer is true for cells that follow each
    /// other, so that sums over them are differences of running sums.
    pub(super) fn fit(&self) -> Fit {
        let all = self.cells() + usize::from(self.may_be_missing);
        let mut shares = vec![1.0 / all as f64; all];
        let mut running = vec![0.0; all + 1];
        let mut steps = vec![0.0; all + 1];
        for _ in 0..ITERATIONS {
            sum_up(&shares, &mut running);
            steps.fill(0.0);
            let mut everywhere = 0.0;
            for row in self.rows.iter().filter(|row| row.count > 0.0) {
                let ratio = row.count / self.probability(row, &running);
                everywhere += self.low * ratio;
                steps[row.from] += (self.high - self.low) * ratio;
                steps[row.to] -= (self.high - self.low) * ratio;
            }
            let (mut more, mut total) = (0.0, 0.0);
            for (share, step) in shares.iter_mut().zip(&steps) {
                more += step;
                // What is left of sums that cancel may be a trifle below 0.
                *share *= everywhere + f64::max(more, 0.0);
                total += *share;
            }
            if total == 0.0 {
                // Nobody answered: equal shares are as good as any.
                shares.fill(1.0 / all as f64);
                break;
            }
            shares.iter_mut().for_each(|share| *share /= total);
        }
        let missing = match self.may_be_missing {
            true => shares.pop().unwrap_or(0.0),
            false => 0.0,
        };
        // Added up: where nearly all are missing, 1 − missing has no digits left.
        let there: f64 = shares.iter().sum();
        if there < SMALLEST_MASS {
            let alike = 1.0 / shares.len() as f64;
            return Fit {
                cells: vec![alike; shares.len()],
                missing: 1.0,
            };
        }
        shares.iter_mut().for_each(|share| *share /= there);
        Fit {
            cells: shares,
            missing,
        }
    }

    fn probability(&self, row: &Row, running: &[f64]) -> f64 {
        self.low + (self.high - self.low) * (running[row.to] - running[row.from])
    }

    /// Probabilities of the answers to each comb under a fit, and how many there are of each comb.
    pub(super) fn expected<'a>(
        &'a self,
        fit: &Fit,
    ) -> impl Iterator<Item = (f64, Vec<f64>)> + use<'a> {
        let there = fit.cells.iter().map(|share| share * (1.0 - fit.missing));
        let shares: Vec<f64> = there
            .chain(self.may_be_missing.then_some(fit.missing))
            .collect();
        let mut running = vec![0.0; shares.len() + 1];
        sum_up(&shares, &mut running);
        self.rows.chunks_exact(self.answers).map(move |comb| {
            let total: f64 = comb.iter().map(|row| row.count).sum();
            let each = comb.iter().map(|row| self.probability(row, &running));
            (total, each.collect::<Vec<f64>>())
        })
    }

    /// These questions with these counts, comb by comb.
    pub(super) fn with_counts(&self, counts: impl Iterator<Item = f64>) -> Self {
        let mut other = self.clone();
        for (row, count) in other.rows.iter_mut().zip(counts) {
            row.count = count;
        }
        other
    }

    /// Mean and standard deviation: over the interval of the second round, unless more than 5 % of the people are
    /// beyond it, otherwise over the range.
    pub(super) fn moments(&self, fit: &Fit) -> Moments {
        self.moments_over(fit, self.interval(fit))
    }

    /// Mean and standard deviation over the range, whatever the interval.
    pub(super) fn moments_of_all(&self, fit: &Fit) -> Moments {
        self.moments_over(fit, self.range())
    }

    fn moments_over(&self, fit: &Fit, interval: [f64; 2]) -> Moments {
        let atoms = self
            .atoms()
            .map(|atom| atom.clamp(interval[0], interval[1]));
        let atoms: Vec<f64> = atoms.collect();
        let weighted = |value: &dyn Fn(f64) -> f64| -> f64 {
            let each = fit.cells.iter().zip(&atoms);
            each.map(|(share, atom)| share * value(*atom)).sum()
        };
        let mean = weighted(&|atom| atom);
        // Around the mean, as the squares of numbers far from 0 cancel.
        let deviation = weighted(&|atom| (atom - mean) * (atom - mean)).sqrt();
        let [least, cell] = match self.within == Some(interval) {
            true => [CELL_OF_SECOND, CELL_OF_SECOND],
            false => [SMALLEST_SPREAD, CELL],
        }
        .map(|share| share * (interval[1] - interval[0]));
        Moments {
            mean,
            deviation: deviation.max(least),
            least,
            cell,
            interval,
        }
    }

    fn interval(&self, fit: &Fit) -> [f64; 2] {
        let Some([from, to]) = self.within else {
            return self.range();
        };
        let beyond = self.atoms().zip(&fit.cells);
        let beyond = beyond.filter(|(atom, _)| *atom < from || *atom > to);
        match beyond.map(|(_, share)| share).sum::<f64>() > MAX_OUTSIDE {
            true => self.range(),
            false => [from, to],
        }
    }

    /// The values that cells stand for: the ends of the range, and the midpoints between rungs.
    fn atoms(&self) -> impl Iterator<Item = f64> {
        let [lo, hi] = self.range();
        let rungs = &self.edges[1..self.edges.len() - 1];
        let midpoints = rungs.windows(2).map(|pair| 0.5 * (pair[0] + pair[1]));
        std::iter::once(lo).chain(midpoints).chain([hi])
    }

    /// The value below which this share of the people is, linear between rungs.
    fn quantile(&self, fit: &Fit, share: f64) -> f64 {
        let mut below = 0.0;
        for (cell, ends) in fit.cells.iter().zip(self.edges.windows(2)) {
            if below + cell >= share {
                return ends[0]
                    + (ends[1] - ends[0]) * (share - below) / cell.max(f64::MIN_POSITIVE);
            }
            below += cell;
        }
        self.range()[1]
    }

    /// A spread that a few far values do not move: the distance from the 10th to the 90th percentile as that of a
    /// normal distribution, at least half the cell of the median.
    pub(super) fn spread(&self, fit: &Fit) -> (f64, f64) {
        let [low, median, high] = [0.1, 0.5, 0.9].map(|share| self.quantile(fit, share));
        let rungs = &self.edges[1..self.edges.len() - 1];
        let cell = rungs.partition_point(|rung| *rung <= median);
        let width = self.edges[cell + 1] - self.edges[cell];
        (median, ((high - low) / 2.56).max(0.5 * width))
    }
}

/// Ends of the cells of each answer to a comb: below, between, at or above, and missing. Behind the cells lies that of
/// missing values, which no other answer is true for.
fn ends_of_answers(rungs: &[f64], ladder: Ladder, comb: u8) -> [usize; 5] {
    let [low, high] = ladder.comb(comb);
    // The cell above a rung.
    let above = |rung: f64| rungs.partition_point(|other| *other < rung) + 1;
    let cells = rungs.len() + 1;
    [0, above(low), above(high), cells, cells + 1]
}

fn sum_up(shares: &[f64], running: &mut [f64]) {
    let mut sum = 0.0;
    for (share, running) in shares.iter().zip(&mut running[1..]) {
        sum += share;
        *running = sum;
    }
}
