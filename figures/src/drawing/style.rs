//! Colours and fonts, as one stylesheet for all figures.

/// Number of series colours, `c0` to `c7`.
pub(crate) const SERIES_COLOURS: usize = 8;

/// The stylesheet, identical in every figure of this crate.
///
/// All selectors start with `.ev-plot`. Colours are set through `color`, and shapes and text use `currentColor`, so the
/// dark part only lists colours.
pub const STYLESHEET: &str = "\
.ev-plot{max-width:100%;height:auto;\
font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','Helvetica Neue',Arial,sans-serif}\
.ev-plot text{fill:currentColor;color:#1b1f24;font-variant-numeric:tabular-nums}\
.ev-plot .t1{font-size:16px;font-weight:600}\
.ev-plot .t2{font-size:13px}\
.ev-plot .t3{font-size:12px}\
.ev-plot .t4{font-size:11px}\
.ev-plot .bg{fill:currentColor;color:#fff}\
.ev-plot text.mut{color:#57606a}\
.ev-plot .grid{stroke:currentColor;color:#e4e7eb;stroke-width:1}\
.ev-plot .axis{stroke:currentColor;color:#6e7781;stroke-width:1}\
.ev-plot .ref{stroke:currentColor;color:#57606a;stroke-width:1.25;fill:none;stroke-dasharray:5 3}\
.ev-plot .r1{stroke-dasharray:2 3}\
.ev-plot .r2{stroke-dasharray:9 3 2 3}\
.ev-plot .bound{stroke:currentColor;color:#8c959f;stroke-width:1;fill:none}\
.ev-plot .lead{stroke:currentColor;color:#9aa3ad;stroke-width:.75;fill:none}\
.ev-plot .band{fill:currentColor;color:#8c959f;fill-opacity:.16}\
.ev-plot .ln{stroke:currentColor;fill:none;stroke-width:2;\
stroke-linejoin:round;stroke-linecap:round}\
.ev-plot .thin{stroke-width:1}\
.ev-plot .dash{stroke-dasharray:7 5}\
.ev-plot .dot{stroke-dasharray:.1 4.5}\
.ev-plot .eb{stroke:currentColor;fill:none;stroke-width:1.25;stroke-opacity:.75}\
.ev-plot .mk{fill:currentColor;stroke:#fff;stroke-width:1}\
.ev-plot .mo{fill:#fff;stroke:currentColor;stroke-width:1.75}\
.ev-plot .mx{fill:none;stroke:currentColor;stroke-width:2;stroke-linecap:round}\
.ev-plot .fine .mx{stroke-width:1.25}\
.ev-plot .fill{fill:currentColor}\
.ev-plot .edge{fill:none;stroke:currentColor;color:#c4cad1;stroke-width:1}\
.ev-plot .c0{color:#0067a8}\
.ev-plot .c1{color:#c8500a}\
.ev-plot .c2{color:#007a5e}\
.ev-plot .c3{color:#a44a8b}\
.ev-plot .c4{color:#8a6a00}\
.ev-plot .c5{color:#3f454c}\
.ev-plot .c6{color:#2b8cbe}\
.ev-plot .c7{color:#b02a37}\
.ev-plot .va{color:#0067a8}\
.ev-plot .vt{color:#c8500a}\
.ev-plot .vb{color:#737b84}\
.ev-plot .pos{color:#d95f02}\
.ev-plot .neg{color:#0b5fa5}\
@media (prefers-color-scheme:dark){\
.ev-plot text{color:#e6e9ed}\
.ev-plot .bg{color:#14171b}\
.ev-plot text.mut{color:#a3abb5}\
.ev-plot .grid{color:#2a2f36}\
.ev-plot .axis{color:#7d8590}\
.ev-plot .ref{color:#a3abb5}\
.ev-plot .lead{color:#6b737d}\
.ev-plot .mk{stroke:#14171b}\
.ev-plot .mo{fill:#14171b}\
.ev-plot .edge{color:#3d444d}\
.ev-plot .c0{color:#58aef0}\
.ev-plot .c1{color:#f28b49}\
.ev-plot .c2{color:#3cc79a}\
.ev-plot .c3{color:#e08cc6}\
.ev-plot .c4{color:#e0bd45}\
.ev-plot .c5{color:#c9d1d9}\
.ev-plot .c6{color:#9bd3f5}\
.ev-plot .c7{color:#ff8a92}\
.ev-plot .va{color:#58aef0}\
.ev-plot .vt{color:#f28b49}\
.ev-plot .vb{color:#9098a2}\
.ev-plot .pos{color:#ff9d4d}\
.ev-plot .neg{color:#4ea3ee}}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::text::Role;

    fn luminance(hex: &str) -> f64 {
        let digits = hex.trim_start_matches('#');
        let full: String = if digits.len() == 3 {
            digits.chars().flat_map(|c| [c, c]).collect()
        } else {
            digits.to_owned()
        };
        let channel = |i: usize| {
            let v = f64::from(u8::from_str_radix(&full[i..i + 2], 16).unwrap()) / 255.0;
            if v <= 0.040_45 {
                v / 12.92
            } else {
                ((v + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4)
    }

    fn colour(half: &str, selector: &str) -> String {
        let rule = half
            .split(&format!(".ev-plot {selector}{{"))
            .nth(1)
            .unwrap();
        let body = rule.split('}').next().unwrap();
        let value = body
            .split(';')
            .find_map(|d| d.strip_prefix("color:"))
            .unwrap();
        value.to_owned()
    }

    #[test]
    fn marks_and_text_stand_out_in_light_and_dark() {
        let (light, dark) = STYLESHEET.split_once("@media").unwrap();
        for half in [light, dark] {
            let background = luminance(&colour(half, ".bg"));
            let contrast = |selector: &str| {
                let mark = luminance(&colour(half, selector));
                (mark.max(background) + 0.05) / (mark.min(background) + 0.05)
            };
            for i in 0..SERIES_COLOURS {
                assert!(contrast(&format!(".c{i}")) >= 3.0, "c{i}");
            }
            for mark in [".va", ".vt", ".vb", ".pos", ".neg", ".axis", ".ref"] {
                assert!(contrast(mark) >= 3.0, "{mark}");
            }
            for text in ["text", "text.mut"] {
                assert!(contrast(text) >= 4.5, "{text}");
            }
        }
    }

    #[test]
    fn is_scoped_and_agrees_with_the_sizes_used_for_layout() {
        for rule in STYLESHEET
            .replace("@media (prefers-color-scheme:dark){", "")
            .split('}')
        {
            assert!(rule.is_empty() || rule.starts_with(".ev-plot"), "{rule}");
        }
        for role in [Role::Title, Role::Subtitle, Role::Label, Role::Small] {
            let rule = format!(".{}{{font-size:{}px", role.class(), role.size());
            assert!(STYLESHEET.contains(&rule), "{rule}");
        }
        assert!(!STYLESHEET.contains(['<', '&']));
    }
}
