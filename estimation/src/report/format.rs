//! Numbers written for people.

/// A whole number with thousands separators.
pub fn with_thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A whole number of few significant digits: "340,000", "2.1 million", "1.2 billion".
pub fn in_words(n: u64) -> String {
    const NAMES: [(u64, &str); 4] = [
        (1_000_000_000_000_000, "quadrillion"),
        (1_000_000_000_000, "trillion"),
        (1_000_000_000, "billion"),
        (1_000_000, "million"),
    ];
    match NAMES.iter().find(|(unit, _)| n >= *unit) {
        // A quotient of two exact numbers is written back without spurious digits.
        Some((unit, name)) => format!("{} {name}", n as f64 / *unit as f64),
        None => with_thousands(n),
    }
}

/// A number of people to three significant digits, rounded up so that it is never too few.
pub fn people(n: u64) -> String {
    with_thousands(round_up(n, 3))
}

/// Three significant digits: "0.198"; "0" for 0.
pub fn three_digits(x: f64) -> String {
    if x == 0.0 {
        return "0".to_owned();
    }
    let decimals = 2 - x.abs().log10().floor().clamp(-99.0, 99.0) as i32;
    match usize::try_from(decimals) {
        Ok(decimals) if decimals <= 6 => format!("{x:.decimals$}"),
        _ => format!("{x:.2e}"),
    }
}

/// `n` to this many significant digits, rounded up.
pub(crate) fn round_up(n: u64, digits: u32) -> u64 {
    let unit = unit_in_last_place(n, digits);
    n.div_ceil(unit).saturating_mul(unit)
}

pub(crate) fn round_down(n: u64, digits: u32) -> u64 {
    let unit = unit_in_last_place(n, digits);
    n / unit * unit
}

/// The value of one unit in the last of the first `digits` digits of `n`.
fn unit_in_last_place(n: u64, digits: u32) -> u64 {
    let limit = 10_u64.saturating_pow(digits);
    let mut unit = 1;
    while n / unit >= limit {
        unit *= 10;
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(with_thousands(0), "0");
        assert_eq!(with_thousands(999), "999");
        assert_eq!(with_thousands(1797), "1,797");
        assert_eq!(with_thousands(1_234_567), "1,234,567");
        for (n, up, down) in [(99, 99, 99), (101, 110, 100), (123_456, 130_000, 120_000)] {
            assert_eq!((round_up(n, 2), round_down(n, 2)), (up, down));
        }
        assert_eq!(people(123_456), "124,000");
        assert_eq!(three_digits(0.123_456), "0.123");
        assert_eq!(three_digits(-12.345), "-12.3");
        assert_eq!(three_digits(1.5e-9), "1.50e-9");
        assert_eq!([0.0, -0.0].map(three_digits), ["0", "0"]);
        assert_eq!(in_words(130_000), "130,000");
        assert_eq!(in_words(999_999), "999,999");
        assert_eq!(in_words(2_100_000), "2.1 million");
        assert_eq!(in_words(34_000_000), "34 million");
        assert_eq!(in_words(1_200_000_000), "1.2 billion");
        assert_eq!(in_words(7_000_000_000_000_000), "7 quadrillion");
    }
}
