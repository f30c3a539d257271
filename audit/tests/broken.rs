//! Mechanisms broken on purpose: each is caught, by the bound or by the law of what it costs.
//!
//! Seeds are fixed. A conviction here is not an accident: a correct mechanism exceeds its claim for at most
//! 5 % of seeds, and the margins below are far beyond that. The test of the tries accuses a correct one
//! once in 1,000 seeds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;

use eigenveil_audit::{
    Bound, CapStatistic, Method, PairKind, Sampling, Side, Statistic, Subject, TriesVerdict,
    event_bound, mu_bound, observe, tries_test,
};
use eigenveil_shared::{
    mechanism::{
        Calibration, MechanismKind, MechanismSpec,
        double_cap::{DoubleCap, Seed, expand},
    },
    preprocess::{BoundedRow, Norm},
    study::{StudyDesign, StudyParams},
};
use rand::{Rng, TryRng, rngs::ChaCha20Rng};

const P: usize = 8;
const TRIALS: usize = 20_000;
const MANY: usize = 1_000_000;
const DELTA: f64 = 1e-6;
const SEED: u64 = 5;

type Pair = (BoundedRow, BoundedRow);

fn study(mechanism: MechanismKind, epsilon: f64) -> StudyParams {
    StudyParams::freeze(StudyDesign {
        dimension: P,
        features: None,
        norm: Norm::Clip { radius: 1.0 },
        centring: None,
        mechanism,
        calibration: Calibration::Analytic,
        budget: mechanism.budget(epsilon, None).unwrap(),
    })
    .unwrap()
}

fn double_cap(epsilon: f64) -> (StudyParams, DoubleCap) {
    let params = study(MechanismKind::DoubleCap, epsilon);
    let MechanismSpec::DoubleCap(cap) = *params.mechanism() else {
        unreachable!()
    };
    (params, cap)
}

fn row(pair: &Pair, side: Side) -> &BoundedRow {
    match side {
        Side::A => &pair.0,
        Side::B => &pair.1,
    }
}

/// The pair's bound by the black-box event.
fn event(what: &str, subject: &dyn Subject, delta: f64, trials: usize) -> Bound {
    let samples = observe(subject, 0, &Sampling::quiet(trials, SEED)).unwrap();
    let bound = event_bound(&samples, delta, 0.95).unwrap();
    eprintln!(
        "{what}, {trials} trials: epsilon ≥ {:.4}",
        bound.epsilon_lower_bound
    );
    bound
}

/// How a variant of `double-cap` differs from the right one.
#[derive(Clone, Copy)]
struct Flaw {
    /// Probability of accepting outside the cap; e^{−ε} is right.
    outsiders: f64,
    /// The coin is drawn outside the cap only.
    lazy_coin: bool,
    /// A short row takes one try and no cap, instead of a fresh direction and the same loop.
    one_try_for_short_rows: bool,
}

impl Flaw {
    fn none(epsilon: f64) -> Self {
        Self {
            outsiders: (-epsilon).exp(),
            lazy_coin: false,
            one_try_for_short_rows: false,
        }
    }
}

/// The design's loop written afresh, with its flaw: the seed and the number of tries.
fn draw<R: Rng + ?Sized>(cap: &DoubleCap, flaw: Flaw, x: &[f64], rng: &mut R) -> (Seed, u64) {
    let uniform = |rng: &mut R| (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let fresh_seed = |rng: &mut R| {
        let mut seed = [0; 16];
        rng.fill_bytes(&mut seed);
        seed
    };
    let squared: f64 = x.iter().map(|x| x * x).sum();
    let keep = uniform(rng) < squared;
    if flaw.one_try_for_short_rows && !keep {
        return (fresh_seed(rng), 1);
    }
    let mut u = vec![0.0; x.len()];
    let length = expand(&fresh_seed(rng), &mut u).sqrt();
    for (u, x) in u.iter_mut().zip(x) {
        *u = if keep {
            x / squared.sqrt()
        } else {
            *u / length
        };
    }
    let mut z = vec![0.0; x.len()];
    let mut tries = 0;
    loop {
        tries += 1;
        let seed = fresh_seed(rng);
        let early = (!flaw.lazy_coin).then(|| uniform(rng));
        let squared_length = expand(&seed, &mut z);
        let product: f64 = z.iter().zip(&u).map(|(z, u)| z * u).sum();
        let inside = product * product > cap.parameters().threshold * squared_length;
        if inside || early.unwrap_or_else(|| uniform(rng)) < flaw.outsiders {
            return (seed, tries);
        }
    }
}

/// Counts the 64-bit words it hands out: what a stopwatch sees of a device.
struct Counting<'a> {
    rng: &'a mut ChaCha20Rng,
    words: u64,
}

impl<'a> Counting<'a> {
    fn new(rng: &'a mut ChaCha20Rng) -> Self {
        Self { rng, words: 0 }
    }
}

impl TryRng for Counting<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.words += 1;
        Ok(self.rng.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.words += 1;
        Ok(self.rng.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.words += bytes.len().div_ceil(8) as u64;
        self.rng.fill_bytes(bytes);
        Ok(())
    }
}

/// The Gaussian mechanisms with σ multiplied by `factor`, judged against the claim ε = 1.
fn gaussian_with_noise_times(factor: f64, trials: usize) -> Vec<(MechanismKind, Bound)> {
    [
        MechanismKind::SymmetricGaussian,
        MechanismKind::IsotropicGaussian,
    ]
    .into_iter()
    .map(|kind| {
        let params = study(kind, 1.0);
        let claimed = params.mechanism();
        let pair = PairKind::Axes.rows(&params, SEED).unwrap();
        let statistic = Statistic::of(claimed, &pair).unwrap();
        let mut json = serde_json::to_value(claimed).unwrap();
        json["sigma"] = (factor * claimed.gaussian_noise().unwrap().sigma()).into();
        let real: MechanismSpec = serde_json::from_value(json).unwrap();
        let subject = |side: Side, rng: &mut ChaCha20Rng| {
            statistic.value(&real.perturb_with(row(&pair, side), rng))
        };
        let samples = observe(&subject, 0, &Sampling::quiet(trials, SEED)).unwrap();
        assert_eq!(Method::of(&real), Method::MuGdp);
        let bound = mu_bound(&real, &samples, DELTA, 0.95).unwrap();
        eprintln!(
            "{kind} with {factor} of its noise, {trials} trials: epsilon ≥ {:.4}",
            bound.epsilon_lower_bound
        );
        (kind, bound)
    })
    .collect()
}

fn half_the_noise(trials: usize) {
    for (kind, bound) in gaussian_with_noise_times(1.0, trials) {
        assert!(bound.epsilon_lower_bound <= 1.0, "{kind}: {bound:?}");
    }
    for (kind, bound) in gaussian_with_noise_times(0.5, trials) {
        assert!(bound.epsilon_lower_bound > 1.5, "{kind}: {bound:?}");
    }
}

fn outsiders_accepted_too_rarely(trials: usize) {
    let epsilon = 1.0;
    let (params, cap) = double_cap(epsilon);
    let pair = PairKind::Axes.rows(&params, SEED).unwrap();
    let statistic = CapStatistic::new(cap.parameters(), pair.0.as_slice(), pair.1.as_slice());
    let with = |flaw: Flaw| {
        let subject = |side: Side, rng: &mut ChaCha20Rng| {
            Ok(statistic.value(&draw(&cap, flaw, row(&pair, side).as_slice(), rng).0))
        };
        event(
            &format!("outsiders accepted with {:.3}", flaw.outsiders),
            &subject,
            0.0,
            trials,
        )
    };
    let right = Flaw::none(epsilon);
    assert!(with(right).epsilon_lower_bound <= epsilon);
    let wrong = Flaw {
        outsiders: (-2.0 * epsilon).exp(),
        ..right
    };
    assert!(with(wrong).epsilon_lower_bound > 1.5 * epsilon);
}

/// A retry must resend the same bytes. Ten fresh reports of one row spend ten budgets.
fn retries_randomised_again(trials: usize) {
    let (params, _) = double_cap(1.0);
    let pair = PairKind::Axes.rows(&params, SEED).unwrap();
    let statistic = Statistic::of(params.mechanism(), &pair).unwrap();
    let subject = |side: Side, rng: &mut ChaCha20Rng| {
        let mut mean = 0.0;
        for _ in 0..10 {
            let payload = params.mechanism().perturb_with(row(&pair, side), rng);
            mean += statistic.value(&payload)? / 10.0;
        }
        Ok(mean)
    };
    let bound = event("ten retries, averaged", &subject, 0.0, trials);
    assert!(bound.epsilon_lower_bound > 2.5, "{bound:?}");
}

/// (output, duration): where the words drawn say that the last try was inside, the output must lie in the
/// true row's cap. A mechanism that draws its coin first never says so.
fn lazy_coin_shows_in_the_time(trials: usize) {
    let (params, cap) = double_cap(1.0);
    let pair = PairKind::Axes.rows(&params, SEED).unwrap();
    let statistic = CapStatistic::new(cap.parameters(), pair.0.as_slice(), pair.1.as_slice());
    // Three words before the loop; a try takes two for the seed and one for the coin.
    let judged = |seed: &Seed, words: u64| {
        let accepted_inside = (words - 3) % 3 == 2;
        let (a, b) = statistic.inside(seed);
        let certain =
            f64::from(u8::from(a && accepted_inside)) - f64::from(u8::from(b && accepted_inside));
        10.0 * certain + statistic.value(seed)
    };
    let lazy = |side: Side, rng: &mut ChaCha20Rng| {
        let flaw = Flaw {
            lazy_coin: true,
            ..Flaw::none(1.0)
        };
        let mut rng = Counting::new(rng);
        let (seed, _) = draw(&cap, flaw, row(&pair, side).as_slice(), &mut rng);
        Ok(judged(&seed, rng.words))
    };
    let bound = event("lazy coin, (output, duration)", &lazy, 0.0, trials);
    assert!(bound.epsilon_lower_bound > 4.0, "{bound:?}");
    // Without the time the same mechanism is right: only this audit sees the flaw.
    let silent = |side: Side, rng: &mut ChaCha20Rng| {
        let flaw = Flaw {
            lazy_coin: true,
            ..Flaw::none(1.0)
        };
        Ok(statistic.value(&draw(&cap, flaw, row(&pair, side).as_slice(), rng).0))
    };
    let bound = event("lazy coin, output alone", &silent, 0.0, trials);
    assert!(bound.epsilon_lower_bound <= 1.0, "{bound:?}");
    // The real mechanism, its duration with it.
    let real = |side: Side, rng: &mut ChaCha20Rng| {
        let mut rng = Counting::new(rng);
        let (seed, _) = cap.draw_with(row(&pair, side), &mut rng);
        Ok(judged(&seed, rng.words))
    };
    let bound = event("double-cap, (output, duration)", &real, 0.0, trials);
    assert!(
        bound.epsilon_lower_bound <= 1.0 && bound.epsilon_lower_bound > 0.8,
        "{bound:?}"
    );
}

/// Rows of length 1, ½ and 0.
fn three_rows(params: &StudyParams) -> [BoundedRow; 3] {
    let (unit, zero) = PairKind::UnitZero.rows(params, SEED).unwrap();
    let mut short = vec![0.0; P];
    short[1] = 0.5;
    let short = params
        .preprocessor()
        .prepare(&eigenveil_shared::preprocess::Row::new(short))
        .unwrap();
    [unit, short, zero]
}

fn one_try_for_short_rows(trials: usize) {
    let (params, cap) = double_cap(1.0);
    let rows = three_rows(&params);
    let with = |flaw: Flaw| {
        let count =
            |at: usize, rng: &mut ChaCha20Rng| Ok(draw(&cap, flaw, rows[at].as_slice(), rng).1);
        let test = tries_test(&count, 3, 0, &Sampling::quiet(trials, SEED)).unwrap();
        eprintln!(
            "one try for short rows {}: mean tries {:?}, p = {:.2e}",
            flaw.one_try_for_short_rows, test.mean, test.p_value
        );
        test.verdict
    };
    let right = Flaw::none(1.0);
    assert_eq!(with(right), TriesVerdict::SameForEveryRow);
    let wrong = Flaw {
        one_try_for_short_rows: true,
        ..right
    };
    assert_eq!(with(wrong), TriesVerdict::DependsOnTheRow);
    // Its outputs alone are perfectly private: only the count gives it away.
    let pair = PairKind::UnitZero.rows(&params, SEED).unwrap();
    let statistic = CapStatistic::new(cap.parameters(), pair.0.as_slice(), pair.1.as_slice());
    let outputs = |side: Side, rng: &mut ChaCha20Rng| {
        Ok(statistic.value(&draw(&cap, wrong, row(&pair, side).as_slice(), rng).0))
    };
    let bound = event(
        "one try for short rows, output alone",
        &outputs,
        0.0,
        trials,
    );
    assert!(bound.epsilon_lower_bound <= 1.0, "{bound:?}");
}

/// Exact, not statistical: the words drawn are a fixed number a try, whatever the row and the outcome.
#[test]
fn every_try_of_double_cap_costs_the_same() {
    for epsilon in [0.1, 1.0, 4.0] {
        let (params, cap) = double_cap(epsilon);
        let rows = three_rows(&params);
        let count = |at: usize, rng: &mut ChaCha20Rng| {
            let mut rng = Counting::new(rng);
            let (_, tries) = cap.draw_with(&rows[at], &mut rng);
            assert_eq!(rng.words, 3 + 3 * tries);
            Ok(tries)
        };
        tries_test(&count, 3, 0, &Sampling::quiet(2_000, SEED)).unwrap();
    }
}

#[test]
fn half_the_noise_is_caught() {
    half_the_noise(TRIALS);
}

#[test]
fn outsiders_accepted_too_rarely_are_caught() {
    outsiders_accepted_too_rarely(TRIALS);
}

#[test]
fn retries_randomised_again_are_caught() {
    retries_randomised_again(TRIALS);
}

#[test]
fn a_lazy_coin_is_caught_by_the_time_it_takes() {
    lazy_coin_shows_in_the_time(TRIALS);
}

#[test]
fn one_try_for_short_rows_is_caught_by_the_tries() {
    one_try_for_short_rows(TRIALS);
}

#[test]
#[ignore = "10⁶ trials a row: about a minute in release"]
fn a_million_trials_of_everything_broken() {
    half_the_noise(MANY);
    outsiders_accepted_too_rarely(MANY);
    retries_randomised_again(MANY);
    lazy_coin_shows_in_the_time(MANY);
    one_try_for_short_rows(MANY);
}
