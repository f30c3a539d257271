//! Domain rules before the study's own preprocessing: what a program does to its raw values is its own
//! business, as long as it looks at one participant only; what bounds the row is the study's.
//!
//! `cargo run -p eigenveil-examples --example custom_preprocessing`

use eigenveil_client::{Clock, Study, SystemClock};
use eigenveil_shared::{
    mechanism::MechanismKind,
    preprocess::{Feature, Norm, Row},
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};

/// The app's data about its user.
struct Usage {
    minutes_per_day: f64,
    sessions_per_day: f64,
    country: Option<&'static str>,
}

/// Logarithms tame heavy tails; a missing country becomes 0 rather than excluding the user.
fn features(usage: &Usage) -> Row {
    let north = match usage.country {
        Some("NO" | "SE" | "FI") => 1.0,
        Some(_) => -1.0,
        None => 0.0,
    };
    Row::new(vec![
        usage.minutes_per_day.ln_1p(),
        usage.sessions_per_day.ln_1p(),
        north,
    ])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Public constants, from last year's published averages, not from these users.
    let params = StudyParams::freeze(StudyDesign {
        features: Some(vec![
            Feature::new("log_minutes", 3.4, 1.0),
            Feature::new("log_sessions", 1.6, 0.7),
            Feature::new("north", 0.0, 1.0),
        ]),
        norm: Norm::Clip { radius: 2.0 },
        ..StudyDesign::new(
            MechanismKind::IsotropicGaussian,
            3,
            Budget::approximate(2.0, 1e-7)?,
        )
    })?;
    let study = Study::new(
        &"http://127.0.0.1:8080".parse()?,
        "0123456789abcdef0123456789abcdef",
        params,
    );
    for usage in [
        Usage {
            minutes_per_day: 42.0,
            sessions_per_day: 6.0,
            country: Some("FI"),
        },
        Usage {
            minutes_per_day: 0.0,
            sessions_per_day: 0.0,
            country: None,
        },
        // A broken counter: the report is made from the zero row, so that participation reveals nothing.
        Usage {
            minutes_per_day: f64::NAN,
            sessions_per_day: 3.0,
            country: None,
        },
    ] {
        let prepared = study.report(&features(&usage), SystemClock.unix_ms())?;
        match prepared.local_warning() {
            None => println!(
                "a report of {} payload bytes",
                prepared.report().payload.len()
            ),
            Some(why) => println!(
                "a report of {} payload bytes, from the zero row: {why}",
                prepared.report().payload.len()
            ),
        }
    }
    Ok(())
}
