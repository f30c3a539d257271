//! Numbers in words, rounded against us.

/// A positive finite number with so many significant digits (up to 15), never less than it is.
pub fn rounded_up(value: f64, digits: u8) -> String {
    let places = usize::from(digits.saturating_sub(1));
    let nearest = format!("{value:.places$e}");
    if nearest.parse::<f64>().is_ok_and(|shown| shown >= value) {
        return nearest;
    }
    // The nearest is below: one unit of the last digit more.
    let unit = 10.0_f64.powi(value.log10().floor() as i32 - i32::from(digits) + 1);
    format!("{:.places$e}", value + unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_less_than_it_is() {
        for value in [
            2.0e-5,
            2.65e-5,
            2.649_999e-5,
            9.99e-8,
            1e-300,
            5e-324,
            9.96,
            0.05,
        ] {
            for digits in [1, 2, 5] {
                let shown: f64 = rounded_up(value, digits).parse().unwrap();
                let unit = 10.0_f64.powi(1 - i32::from(digits)).max(5e-324 / value);
                assert!(shown >= value, "{value:e}: {shown:e}");
                assert!(
                    shown <= value * (1.0 + 1.001 * unit),
                    "{value:e}: {shown:e}"
                );
            }
        }
    }
}
