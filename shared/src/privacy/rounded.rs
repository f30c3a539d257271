//! Numbers as text, rounded up.

/// A positive finite number with this many significant digits (up to 15), rounded up.
pub fn format_rounded_up(value: f64, digits: u8) -> String {
    let places = usize::from(digits.saturating_sub(1));
    let nearest = format!("{value:.places$e}");
    if nearest.parse::<f64>().is_ok_and(|shown| shown >= value) {
        return nearest;
    }
    // The nearest is below: one unit of the last digit more.
    let unit = 10.0_f64.powi(value.log10().floor() as i32 - i32::from(digits) + 1);
    format!("{:.places$e}", value + unit)
}

/// ε with this many decimals, rounded up.
pub fn format_epsilon(epsilon: f64, decimals: usize) -> String {
    let nearest = format!("{epsilon:.decimals$}");
    if nearest.parse::<f64>().is_ok_and(|shown| shown >= epsilon) {
        return nearest;
    }
    let unit = 0.1_f64.powi(decimals as i32);
    format!("{:.decimals$}", epsilon + unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epsilon_is_never_shown_smaller() {
        for (epsilon, shown) in [
            (5.26493, "5.2650"),
            (5.2649, "5.2649"),
            (0.333_334_25, "0.3334"),
            (1.0, "1.0000"),
            (15.99995, "16.0000"),
            (1e-9, "0.0001"),
        ] {
            assert_eq!(format_epsilon(epsilon, 4), shown);
            let six: f64 = format_epsilon(epsilon, 6).parse().unwrap();
            assert!(six >= epsilon && six < epsilon + 1.1e-6);
        }
    }

    #[test]
    fn never_less_than_it_is() {
        let (ordinary, small) = (
            [2.0e-5, 2.65e-5, 2.649_999e-5, 9.96, 0.05],
            [9.99e-8, 1e-300, 5e-324],
        );
        for value in ordinary.into_iter().chain(small) {
            for digits in [1, 2, 5] {
                let printed: f64 = format_rounded_up(value, digits).parse().unwrap();
                let unit = 10.0_f64.powi(1 - i32::from(digits)).max(5e-324 / value);
                assert!(printed >= value, "{value:e}: {printed:e}");
                let most = value * (1.0 + 1.001 * unit);
                assert!(printed <= most, "{value:e}: {printed:e}");
            }
        }
    }
}
