//! Numbers formatted for people.

/// Values further from zero than this are treated as not finite.
pub(crate) const MAX_DRAWABLE: f64 = 1e300;
/// Values closer to zero than this are treated as zero.
pub(crate) const MIN_DRAWABLE: f64 = 1e-300;

pub(crate) fn drawable(value: f64) -> bool {
    value.is_finite() && value.abs() <= MAX_DRAWABLE
}

/// A number with at most four significant digits: `0.1235`, `9876`, `12.3k`, `5M`, `2.5×10⁹`, `−3`. Values that are not
/// finite become `n/a`.
#[must_use]
pub fn compact(value: f64) -> String {
    if !drawable(value) {
        return "n/a".to_owned();
    }
    if value.abs() < MIN_DRAWABLE {
        return "0".to_owned();
    }
    let exponent = exponent_of(value, 4);
    match exponent {
        -4..=3 => decimal(value, (3 - exponent).max(0)),
        4..=5 => format!("{}k", decimal(value / 1e3, 6 - exponent)),
        6..=8 => format!("{}M", decimal(value / 1e6, 9 - exponent)),
        _ => scientific(value, exponent, 3),
    }
}

/// Like [`compact`], for a value rounded to `decimals` decimals.
#[must_use]
pub fn rounded(value: f64, decimals: i32) -> String {
    let unit = 10f64.powi(decimals);
    compact((value * unit).round() / unit)
}

/// Like [`rounded`], but a nonzero error that would round to 0 keeps one digit.
#[must_use]
pub fn rounded_error(error: f64, decimals: i32) -> String {
    if error > 0.0 && error < 0.5 * 10f64.powi(-decimals) {
        compact(format!("{error:.0e}").parse().unwrap_or(error))
    } else {
        rounded(error, decimals)
    }
}

/// A value to four decimals with its standard error, if any.
#[must_use]
pub fn with_error(value: f64, error: Option<f64>) -> String {
    let value = rounded(value, 4);
    error.map_or(value.clone(), |error| {
        format!("{value} ± {}", rounded_error(error, 4))
    })
}

/// The least that a value can be, to four decimals, with the standard error of that bound, if any: never "±", because the
/// value may be larger by any amount.
#[must_use]
pub fn at_least(bound: f64, error: Option<f64>) -> String {
    let bound = rounded(bound, 4);
    let error = error.map(|error| format!(" (s.e. {})", rounded_error(error, 4)));
    format!("≥ {bound}{}", error.unwrap_or_default())
}

/// Five significant digits for a table in a file, in scientific notation if it would be long; empty for a value that is
/// not finite.
#[must_use]
pub fn short(value: f64) -> String {
    if value.is_nan() {
        return String::new();
    }
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    // Through text: the nearest number of five digits.
    let rounded: f64 = format!("{value:.4e}").parse().unwrap_or(value);
    match rounded.abs() {
        1e-3..1e7 => rounded.to_string(),
        _ => format!("{rounded:e}"),
    }
}

/// A number with this many significant digits for a table in a text; "–" for a value that is not finite.
#[must_use]
pub fn digits(value: f64, digits: usize) -> String {
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

/// Labels of an axis of evenly spaced values, `step` apart: one unit and one number of decimals for all of them, as
/// many as are needed to distinguish neighbours.
pub(crate) fn linear_labels(values: &[f64], step: f64) -> Vec<String> {
    let largest = values.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    if largest < MIN_DRAWABLE {
        return values.iter().map(|_| "0".to_owned()).collect();
    }
    let top = floor_log10(largest);
    let (unit, suffix) = match top {
        4..=5 => (3, "k".to_owned()),
        6..=8 => (6, "M".to_owned()),
        -4..=3 => (0, String::new()),
        _ => (top, format!("×10{}", superscript(top))),
    };
    let decimals = (unit - floor_log10(step)).max(0);
    values
        .iter()
        .map(|&v| {
            if v.abs() < step * 1e-6 {
                "0".to_owned()
            } else {
                format!("{}{suffix}", fixed(shift(v, -unit), decimals))
            }
        })
        .collect()
}

/// Tick labels of a logarithmic axis: all as ordinary numbers, or all as powers of ten.
pub(crate) fn log_labels(values: &[f64]) -> Vec<String> {
    let ordinary = values.iter().all(|v| (9.9e-5..1.1e9).contains(v));
    let thousands = values.iter().any(|&v| v >= 9.99e3);
    values
        .iter()
        .map(|&v| {
            let exponent = exponent_of(v, 4);
            if ordinary && thousands && exponent == 3 {
                format!("{}k", decimal(v / 1e3, 3))
            } else if ordinary && exponent < 9 {
                compact(v)
            } else if ordinary {
                format!("{}M", decimal(v / 1e6, 0))
            } else if (shift(v, -exponent) - 1.0).abs() < 1e-6 {
                format!("10{}", superscript(exponent))
            } else {
                scientific(v, exponent, 3)
            }
        })
        .collect()
}

/// `floor(log10 |value|)`, exact at powers of ten.
pub(crate) fn floor_log10(value: f64) -> i32 {
    let guess = value.abs().log10();
    let nearest = guess.round();
    let whole = if (guess - nearest).abs() < 1e-9 {
        nearest
    } else {
        guess.floor()
    };
    whole as i32
}

/// Decimal exponent of a value rounded to this many significant digits.
fn exponent_of(value: f64, digits: usize) -> i32 {
    let text = format!("{:.*e}", digits - 1, value);
    text.split_once('e')
        .and_then(|(_, e)| e.parse().ok())
        .unwrap_or(0)
}

/// `value · 10^by` without intermediate overflow.
fn shift(value: f64, by: i32) -> f64 {
    let half = by / 2;
    value * 10f64.powi(half) * 10f64.powi(by - half)
}

fn scientific(value: f64, exponent: i32, decimals: i32) -> String {
    format!(
        "{}×10{}",
        decimal(shift(value, -exponent), decimals),
        superscript(exponent)
    )
}

/// Rounded to this many decimals, without trailing zeros.
fn decimal(value: f64, decimals: i32) -> String {
    let text = fixed(value, decimals);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Rounded to this many decimals, with a real minus sign and no negative zero.
fn fixed(value: f64, decimals: i32) -> String {
    let text = format!("{:.*}", usize::try_from(decimals).unwrap_or(0), value);
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.to_owned(),
        Some(rest) => format!("−{rest}"),
        None => text,
    }
}

fn superscript(exponent: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raised = |c: char| c.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize]);
    exponent.to_string().chars().map(raised).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_readable() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (0.123_456, "0.1235"),
            (0.000_5, "0.0005"),
            (0.000_012_34, "1.234×10⁻⁵"),
            (-3.5, "−3.5"),
            (999.96, "1000"),
            (9_999.9, "10k"),
            (12_345.0, "12.35k"),
            (100_000.0, "100k"),
            (999_999.0, "1M"),
            (5_200_000.0, "5.2M"),
            (2.5e9, "2.5×10⁹"),
            (f64::NAN, "n/a"),
            (f64::NEG_INFINITY, "n/a"),
        ] {
            assert_eq!(compact(value), text);
        }
    }

    #[test]
    fn numbers_of_tables_keep_their_size() {
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

    #[test]
    fn a_standard_error_is_not_shown_as_zero() {
        for (error, text) in [
            (Some(0.003_72), "0.3538 ± 0.0037"),
            (Some(4.2e-5), "0.3538 ± 4×10⁻⁵"),
            (Some(3e-9), "0.3538 ± 3×10⁻⁹"),
            (Some(0.0), "0.3538 ± 0"),
            (None, "0.3538"),
        ] {
            assert_eq!(with_error(0.353_76, error), text);
        }
    }

    #[test]
    fn a_bound_has_no_plus_or_minus() {
        assert_eq!(at_least(0.0913, Some(0.005)), "≥ 0.0913 (s.e. 0.005)");
        assert_eq!(at_least(0.0913, None), "≥ 0.0913");
    }

    #[test]
    fn an_axis_shares_one_unit() {
        assert_eq!(linear_labels(&[0.0, 5e3, 1e4], 5e3), ["0", "5k", "10k"]);
        assert_eq!(linear_labels(&[0.0, 0.5, 1.0], 0.5), ["0", "0.5", "1.0"]);
        let wide = linear_labels(&[-2e9, 0.0, 2e9], 2e9);
        assert_eq!(wide, ["−2×10⁹", "0", "2×10⁹"]);
        let narrow = linear_labels(&[100_000.0, 100_001.0], 1.0);
        assert_eq!(narrow, ["100.000k", "100.001k"]);
        let thousands = log_labels(&[100.0, 1e3, 1e4, 1e5]);
        assert_eq!(thousands, ["100", "1k", "10k", "100k"]);
        assert_eq!(log_labels(&[1e-7, 1e2]), ["10⁻⁷", "10²"]);
        assert_eq!(log_labels(&[2e-7, 1e-6]), ["2×10⁻⁷", "10⁻⁶"]);
    }

    proptest! {
        #[test]
        fn at_most_four_significant_digits(value in proptest::num::f64::ANY) {
            let text = compact(value);
            let mantissa = text.split('×').next().unwrap_or_default();
            let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
            prop_assert!(digits.trim_start_matches('0').trim_end_matches('0').len() <= 4, "{text}");
            prop_assert!(text.chars().count() <= 14, "{text}");
        }
    }
}
