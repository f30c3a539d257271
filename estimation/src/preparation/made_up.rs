//! Made-up answers about a column: how far they move it, and how many of them show.

use super::round::Rounds;
use crate::format::with_thousands;

/// Standard deviations by which a number of answers exceeds its mean that no draw explains.
const FAR: f64 = 5.0;
/// Such a deviation is taken to be at least this: small numbers of answers have longer tails than a normal
/// distribution.
const LEAST_DEVIATION: f64 = 5.0;

/// By how much each share of the answers about one of `columns` moves at most, for each share of all devices that make
/// up answers: p(e^ε + B − 1)/(e^ε − 1), as all of them may choose this column. `information` is that of one answer.
pub(super) fn reach(columns: usize, information: f64) -> f64 {
    columns as f64 / information.sqrt()
}

/// Messages about more answers to the questions about a column than devices that draw their question give.
pub(super) fn crowded(rounds: Rounds<'_>, column: usize) -> Vec<String> {
    let name = &rounds.columns()[column].name;
    let drawn = 1.0 / rounds.columns().len() as f64;
    let messages = rounds.all().filter_map(|round| {
        let combs = round.counts_of(column);
        let combs: Vec<u64> = combs.map(|counts| counts.iter().sum::<u64>()).collect();
        let busiest = combs.iter().copied().max().unwrap_or_default();
        let of_pair = drawn / combs.len() as f64;
        let numbers = [
            (combs.iter().sum::<u64>(), drawn, "are about it"),
            (busiest, of_pair, "compare it with the same two values"),
        ];
        let people = round.people();
        let (answers, share, what) = numbers
            .into_iter()
            .find(|(answers, share, _)| is_far(*answers, people, *share))?;
        Some(format!(
            "{name:?}: {} of {} answers {what}, where devices that draw their question give about {}: some choose it, or answer more than once",
            with_thousands(answers),
            with_thousands(people),
            with_thousands((share * people as f64).round() as u64)
        ))
    });
    messages.collect()
}

/// Whether so many answers are too many for one question of which this share of the people draw.
fn is_far(answers: u64, people: u64, share: f64) -> bool {
    let expected = share * people as f64;
    let deviation = (expected * (1.0 - share)).sqrt();
    answers as f64 - expected > FAR * deviation.max(LEAST_DEVIATION)
}
