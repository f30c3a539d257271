//! The mechanism of a preparation: one question about one column, answered by randomised response.
//!
//! ```text
//! Row ──one column's cells──▶ true answer, 0 … B − 1 ──(+ shift) mod B──▶ answer
//!       drawn before they      below, between, above;       drawn before, too:
//!       are looked at          yes; a category; missing     0 with probability e^ε/(e^ε + B − 1)
//! ```
//!
//! * Neighbours: any two rows that a participant might hold, cells that are missing included.
//! * Sensitivity: none; the ratio of probabilities is bounded for each pair of true answers.
//! * Guarantee: pure ε-LDP. Column, comb, shift and the answer in place of a cell that cannot be used are drawn from
//!   distributions that do not depend on the row; given them the answer is a function of the cells of one column. Any
//!   answer has probability e^ε/(e^ε + B − 1) or 1/(e^ε + B − 1), or 1/B, which lies between.
//! * Rounding: none. The coin compares a 64-bit word with a whole number that is rounded down (less truth, more noise),
//!   and whole numbers are drawn by rejection.
//! * Side channels: what is drawn, and how long that takes, does not depend on the row; nothing branches on a cell.
//! * Source: Warner 1965, with more than two answers k-ary randomised response (Kairouz, Oh & Viswanath 2014).
//!
//! `docs/derivations/preparation.md` has the proof.

mod answer;
mod ladder;
mod question;
mod respond;

#[cfg(test)]
mod tests;

pub use answer::{ANSWER_LEN, Answer};
pub use ladder::Ladder;
pub use question::{Question, QuestionKind};
pub use respond::RandomisedResponse;
