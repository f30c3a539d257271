//! Text layout: size per role, estimated width, line breaks.

/// The role of a text, which determines its size in the stylesheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Title of the figure.
    Title,
    /// Line under the title.
    Subtitle,
    /// Names of axes, series and panels.
    Label,
    /// Numbers on axes and small notes.
    Small,
}

impl Role {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Role::Title => "t1",
            Role::Subtitle => "t2",
            Role::Label => "t3",
            Role::Small => "t4",
        }
    }

    pub(crate) fn size(self) -> f64 {
        match self {
            Role::Title => 16.0,
            Role::Subtitle => 13.0,
            Role::Label => 12.0,
            Role::Small => 11.0,
        }
    }

    pub(crate) fn line_height(self) -> f64 {
        (self.size() * 1.3).round()
    }

    /// Maximum width of a text in a wide typeface: 0.6 em for most characters.
    pub(crate) fn width(self, text: &str) -> f64 {
        text.chars().map(|c| self.advance(c)).sum()
    }

    pub(crate) fn widest<T: AsRef<str>>(self, texts: impl IntoIterator<Item = T>) -> f64 {
        let widths = texts.into_iter().map(|text| self.width(text.as_ref()));
        widths.fold(0.0, f64::max)
    }

    fn advance(self, c: char) -> f64 {
        let em = match c {
            'm' | 'w' | 'M' | 'W' | '−' | '+' | '=' | '<' | '>' | '±' | '×' | '~' => 0.86,
            '%' | '@' | '…' | '—' => 1.0,
            '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{ffef}' | '\u{1f000}'.. => 1.0,
            _ if self == Role::Title || c.is_uppercase() => 0.66,
            _ => 0.6,
        };
        em * self.size()
    }

    /// Breaks a text at its ordinary spaces into at most `max_lines` lines no wider than `max_width`; a text that does
    /// not fit ends in "…".
    pub(crate) fn wrap(self, text: &str, max_width: f64, max_lines: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut line = String::new();
        for word in text
            .split(|c: char| c.is_ascii_whitespace())
            .filter(|w| !w.is_empty())
        {
            let mut word = word.to_owned();
            if !line.is_empty() {
                if self.width(&line) + self.width(" ") + self.width(&word) <= max_width {
                    line.push(' ');
                    line.push_str(&word);
                    continue;
                }
                lines.push(std::mem::take(&mut line));
            }
            while self.width(&word) > max_width && word.chars().count() > 1 {
                let fits = after_separator(&word, self.fitting_chars(&word, max_width).max(1));
                let rest: String = word.chars().skip(fits).collect();
                lines.push(word.chars().take(fits).collect());
                word = rest;
            }
            line = word;
        }
        if !line.is_empty() {
            lines.push(line);
        }
        if lines.len() > max_lines {
            let rest = lines.split_off(max_lines.saturating_sub(1)).join(" ");
            lines.push(self.shorten(&rest, max_width));
        }
        lines
    }

    /// Cuts a text to `max_width`; a shortened one ends in "…".
    pub(crate) fn shorten(self, text: &str, max_width: f64) -> String {
        if self.width(text) <= max_width {
            return text.to_owned();
        }
        let fits = self.fitting_chars(text, max_width - self.width("…"));
        let beginning: String = text.chars().take(fits).collect();
        format!("{}…", beginning.trim_end())
    }

    fn fitting_chars(self, text: &str, max_width: f64) -> usize {
        let mut used = 0.0;
        text.chars()
            .take_while(|&c| {
                used += self.advance(c);
                used <= max_width
            })
            .count()
    }
}

/// Where to break a word of which `fits` characters fit: after the last `_`, `-`, `/`, `.` or `:` (common in feature
/// names) that leaves a part of some length, if any.
fn after_separator(word: &str, fits: usize) -> usize {
    let separators = word.chars().take(fits).enumerate();
    let last = separators
        .filter(|(_, c)| matches!(c, '_' | '-' | '/' | '.' | ':'))
        .last();
    last.map(|(at, _)| at + 1)
        .filter(|length| *length >= 3)
        .unwrap_or(fits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn breaks_at_words_and_inside_long_ones() {
        let role = Role::Label; // 7.2 px per character
        assert_eq!(role.wrap("one two three", 60.0, 9), ["one two", "three"]);
        assert_eq!(role.wrap("abcdefghijkl", 50.0, 9), ["abcdef", "ghijkl"]);
        assert_eq!(
            role.wrap("one two three four", 60.0, 2),
            ["one two", "three…"]
        );
        assert!(role.wrap("  ", 60.0, 2).is_empty());
        let name = "Horizontal_Distance_To_Roadways";
        assert_eq!(
            role.wrap(name, 160.0, 9),
            ["Horizontal_Distance_", "To_Roadways"]
        );
    }

    proptest! {
        #[test]
        fn lines_fit_and_lose_nothing(text in "[a-z ]{0,80}", max_width in 20.0..300.0f64) {
            let lines = Role::Small.wrap(&text, max_width, usize::MAX);
            prop_assert!(lines.iter().all(|l| Role::Small.width(l) <= max_width + 1e-9));
            let squash = |s: &str| s.split_whitespace().collect::<String>();
            prop_assert_eq!(squash(&lines.concat()), squash(&text));
        }
    }
}
