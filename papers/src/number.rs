//! Numbers as they stand in a table.

/// Five significant digits, as a power of ten where it would be long; empty for what is not a number.
pub(crate) fn short(value: f64) -> String {
    if value.is_nan() {
        return String::new();
    }
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    // Through text: the nearest number of five digits.
    let rounded: f64 = format!("{value:.4e}").parse().unwrap_or(value);
    if (1e-3..1e7).contains(&rounded.abs()) {
        rounded.to_string()
    } else {
        format!("{rounded:e}")
    }
}

/// `digits` significant digits, as people read them.
pub(crate) fn digits(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "–".to_owned();
    }
    if value == 0.0 || value.is_infinite() {
        return value.to_string();
    }
    let power = value.abs().log10().floor();
    if !(-3.0..6.0).contains(&power) {
        return format!("{value:.*e}", digits.saturating_sub(1));
    }
    let places = (digits as f64 - 1.0 - power).max(0.0) as usize;
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_their_size() {
        assert_eq!(short(0.123_456_789), "0.12346");
        assert_eq!(short(4.321_98e-13), "4.322e-13");
        assert_eq!(short(122_635.2), "122640");
        assert_eq!(short(f64::NAN), "");
        assert_eq!(short(10.0), "10");
        assert_eq!(digits(4.3219, 3), "4.32");
        assert_eq!(digits(43.219, 3), "43.2");
        assert_eq!(digits(4.3219e-13, 2), "4.3e-13");
        assert_eq!(digits(f64::NAN, 2), "–");
    }
}
