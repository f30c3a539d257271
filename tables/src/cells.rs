//! Cells of a text table: numbers, missing values, and everything else.

use crate::problems::UnreadableReason;

/// Whether it is a number, a bound as laboratories write it (`<0.5`, `> 100`, `~3`), or a mark for a missing value.
pub(crate) fn is_value(cell: &str) -> bool {
    let bound = cell.trim_start_matches(['<', '>', '=', '~', '≤', '≥', '≈', ' ']);
    is_missing(cell) || number(bound, DecimalMark::Either).is_ok()
}

/// Whether it is a value and a word too, such as `NA`, `inf` or `True`: it may be a column's name as well (`Na` is sodium).
pub(crate) fn is_word(cell: &str) -> bool {
    is_value(cell) && cell.starts_with(char::is_alphabetic)
}

/// Whether it is a day, alone or with a time of day: 2024-03-01, 1.3.2024, 03/01/24, 2024-03-01T12:00:00Z.
pub(crate) fn is_date(cell: &str) -> bool {
    let day = cell.split([' ', 'T']).next().unwrap_or_default();
    ['-', '.', '/'].into_iter().any(|separator| {
        let parts: Vec<&str> = day.split(separator).collect();
        let number =
            |part: &&str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        parts.len() == 3 && parts.iter().all(number)
    })
}

/// How people and programs mark a missing value.
pub(crate) fn is_missing(cell: &str) -> bool {
    const MISSING: [&str; 18] = [
        "", "-", "–", "—", "?", ".", "na", "n/a", "<na>", "#n/a", "#na", "nan", "-nan", "null",
        "none", "nil", "missing", "\\n",
    ];
    MISSING.contains(&cell.to_ascii_lowercase().as_str())
}

/// The decimal mark of a table's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalMark {
    /// A point; commas separate thousands.
    Point,
    /// A comma; points separate thousands.
    Comma,
    /// The mark that each number shows; in doubt, as in 1,234, a comma is one.
    Either,
    /// The mark that each number shows; a number in doubt is refused.
    Unsure,
}

impl DecimalMark {
    /// Where nobody says it: between commas a number in doubt is refused.
    pub(crate) fn of_columns_separated_by(delimiter: u8) -> Self {
        match delimiter {
            b',' => DecimalMark::Unsure,
            _ => DecimalMark::Either,
        }
    }
}

/// Parses the number in a field. Minus signs, brackets and groups of digits as people and spreadsheets write them are
/// read, because only negative and large values have them: rows must not get lost by their values.
pub(crate) fn number(cell: &str, mark: DecimalMark) -> Result<f64, UnreadableReason> {
    if is_missing(cell) {
        return Err(UnreadableReason::Missing);
    }
    if mark != DecimalMark::Comma
        && let Ok(number) = cell.parse::<f64>()
    {
        return Ok(number);
    }
    match cell {
        "True" | "TRUE" | "true" => return Ok(1.0),
        "False" | "FALSE" | "false" => return Ok(0.0),
        _ => {}
    }
    // Also (5%) and 5%-.
    if cell.contains(PERCENT) {
        let bare = cell.replacen(PERCENT, "", 1);
        if !bare.contains(PERCENT) && number(&bare, DecimalMark::Either).is_ok() {
            return Err(UnreadableReason::Percent);
        }
    }
    let plain = plain_number(cell);
    let cell = plain.as_str();
    let is_marked = match mark {
        DecimalMark::Point => Some((',', '.')),
        DecimalMark::Comma => Some(('.', ',')),
        DecimalMark::Either | DecimalMark::Unsure => None,
    };
    if let Some((by, point)) = is_marked {
        return grouped(cell, by, point, 0).ok_or_else(|| {
            match number(cell, DecimalMark::Either) {
                Ok(_) => UnreadableReason::OtherMark,
                Err(_) => UnreadableReason::NotANumber,
            }
        });
    }
    if let Ok(number) = cell.parse() {
        return Ok(number);
    }
    // 1,234,567 and 1.234,5 can only be read in one way; so can 0,125 and 1,5, also between commas.
    if let Some(number) = grouped(cell, ',', '.', 3).or_else(|| grouped(cell, '.', ',', 3)) {
        return Ok(number);
    }
    let Some((before, after)) = cell.split_once(',') else {
        return Err(UnreadableReason::NotANumber);
    };
    let whole = before.trim_start_matches(['-', '+']);
    if !whole.bytes().all(|b| b.is_ascii_digit()) {
        return Err(UnreadableReason::NotANumber);
    }
    match format!("{before}.{after}").parse() {
        Ok(_) if mark == DecimalMark::Unsure && may_be_thousands(before, after) => {
            Err(UnreadableReason::DecimalComma)
        }
        Ok(number) => Ok(number),
        Err(_) => Err(UnreadableReason::NotANumber),
    }
}

/// A number whose groups of three digits (in India of two before the last) are separated by `by`, before the `point` of
/// its decimals; groups and decimals are at least `parts` in all.
fn grouped(cell: &str, by: char, point: char, parts: usize) -> Option<f64> {
    let (whole, decimals) = match cell.split_once(point) {
        Some((whole, decimals)) => (whole, format!(".{decimals}")),
        None => (cell, String::new()),
    };
    let bare = whole.strip_prefix(['-', '+']).unwrap_or(whole);
    let groups: Vec<&str> = bare.split(by).collect();
    if let [first, inner @ .., last] = &groups[..] {
        let digits = |group: &&str| group.bytes().all(|b| b.is_ascii_digit());
        let all_wide = |wide: usize| inner.iter().all(|group| group.len() == wide);
        let wide = last.len() == 3 && (all_wide(3) || (by == ',' && all_wide(2)));
        let fits = (1..=3).contains(&first.len()) && !first.starts_with('0');
        if !fits || !wide || !groups.iter().all(digits) {
            return None;
        }
    }
    let marks = groups.len() + usize::from(!decimals.is_empty());
    let plain = || format!("{}{decimals}", whole.replace(by, ""));
    (marks >= parts).then(|| plain().parse().ok())?
}

/// Whether a comma or point between these may separate thousands, as in 12,500.
fn may_be_thousands(before: &str, after: &str) -> bool {
    let before = before.trim_start_matches(['-', '+']);
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    after.len() == 3
        && digits(after)
        && (1..=3).contains(&before.len())
        && digits(before)
        && !before.starts_with('0')
}

const PERCENT: [char; 4] = ['%', '‰', '٪', '％'];
const MINUS: [char; 8] = ['-', '−', '‐', '‑', '–', '—', '﹣', '－'];
/// Between groups of three digits: spaces, apostrophes, underscores.
const SEPARATORS: [char; 9] = [
    ' ', '\u{a0}', '\u{2007}', '\u{2008}', '\u{2009}', '\u{202f}', '\'', '’', '_',
];

fn is_currency(c: char) -> bool {
    matches!(c, '$' | '¢' | '£' | '¥' | '￥' | '\u{20a0}'..='\u{20c0}')
}

/// A number with an ASCII minus sign before it and without [`SEPARATORS`]: -1234.5 for −1 234.5, (1'234.5) and 1234.5-. A
/// currency sign is dropped, and so is Excel's `="…"`; Fortran's exponent 1.5D+3 is 1.5E+3.
fn plain_number(cell: &str) -> String {
    let trim = |text: &str| {
        // Hebrew, Arabic and Persian programs mark the direction of negative numbers.
        let direction = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let space = |c: char| c.is_whitespace() || SEPARATORS[..6].contains(&c) || direction(c);
        text.trim_matches(space).to_owned()
    };
    let within = |text: &str, open: &str, close: &str| {
        let inner = text.strip_prefix(open)?.strip_suffix(close)?;
        Some(trim(inner))
    };
    let mut body = trim(cell);
    body = within(&body, "=\"", "\"").unwrap_or(body);
    // A sign behind an apostrophe is no formula.
    let escaped = body.strip_prefix('\'');
    if let Some(signed) = escaped.filter(|text| text.starts_with(MINUS) || text.starts_with('+')) {
        body = trim(signed);
    }
    let mut sign = None;
    // −5 €, €−5, €(5), −€5, 5− €, +5 €: each at most once; an accountant's `€ -` is 0, and a price of `5,-` is 5.
    for _ in 0..3 {
        let bare = body.strip_prefix(is_currency);
        if let Some(bare) = bare.or_else(|| body.strip_suffix(is_currency)) {
            body = match trim(bare) {
                dash if MINUS.iter().any(|minus| dash == minus.to_string()) => "0".to_owned(),
                bare => bare,
            };
        }
        let price = body.trim_end_matches(MINUS);
        if body.ends_with(MINUS) && price.ends_with([',', '.']) {
            body = format!("{price}0");
        }
        if sign.is_none()
            && let Some(bare) = body.strip_prefix('+')
        {
            (body, sign) = (trim(bare), Some('+'));
        }
        let bare = body
            .strip_prefix(MINUS)
            .or_else(|| body.strip_suffix(MINUS));
        let bare = bare.map(trim).or_else(|| within(&body, "(", ")"));
        if let Some(bare) = bare.filter(|_| sign.is_none()) {
            (body, sign) = (bare, Some('-'));
        }
    }
    let mut plain = String::with_capacity(body.len() + 1);
    plain.extend(sign);
    let has_point = body.contains('.');
    let (mut digits, mut grouped) = (0, false);
    for (at, c) in body.char_indices() {
        if SEPARATORS.contains(&c) {
            let rest = &body[at + c.len_utf8()..];
            let next = rest.bytes().take_while(u8::is_ascii_digit).count();
            // Between groups of three, and nothing else: 030 525 123 is no number.
            let zero = body.starts_with('0') && !body[..at].contains(['.', ',']);
            let first = !grouped && (digits > 3 || zero);
            if next != 3 || digits == 0 || first || (grouped && digits != 3) {
                return body;
            }
            (digits, grouped) = (0, true);
            continue;
        }
        digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
        plain.push(match c {
            'd' | 'D' if has_point => 'E',
            _ if MINUS.contains(&c) => '-',
            _ => c,
        });
    }
    plain
}

/// How a number is written.
#[derive(Clone, Copy)]
enum Mark {
    /// Certainly with a decimal comma: 0,125, 1,5 and 1.234.567.
    Comma,
    /// Certainly with a decimal point.
    Point,
    /// With a comma that may separate thousands: 12,500.
    DoubtfulComma,
    /// With a point that may: 12.500.
    DoubtfulPoint,
    /// With neither comma nor point, and not 0.
    Whole,
    /// With brackets, a minus sign behind it, a currency, spaces: what may not be meant as a number.
    Styled,
}

/// How many numbers of a column or a file are written in which way.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marks([usize; 6]);

impl Marks {
    pub(crate) fn record(&mut self, cell: &str) {
        let usual = |b: u8| b.is_ascii_digit() || b"+-.,eE".contains(&b);
        if !cell.bytes().all(usual) || cell.ends_with('-') {
            let styled = cell.contains(|c| matches!(c, '(' | ' ') || is_currency(c));
            if styled || cell.ends_with(MINUS) {
                self.count(Mark::Styled);
            }
        }
        let (comma, point) = (cell.rfind(','), cell.rfind('.'));
        let Some(last) = comma.max(point) else {
            if cell != "0" {
                self.count(Mark::Whole);
            }
            return;
        };
        let is_comma = comma > point;
        let mark = if is_comma { ',' } else { '.' };
        let several = cell.find(mark) != Some(last);
        let (before, after) = cell.split_at(last);
        let outside = |c: char| !c.is_ascii_digit();
        let before = before.trim_start_matches(outside);
        let after = after[1..].trim_end_matches(outside);
        let both = comma.is_some() && point.is_some();
        let doubtful = !both && !several && may_be_thousands(before, after);
        self.count(match (is_comma != several, doubtful) {
            (true, false) => Mark::Comma,
            (false, false) => Mark::Point,
            (_, true) if is_comma => Mark::DoubtfulComma,
            _ => Mark::DoubtfulPoint,
        });
    }

    fn count(&mut self, mark: Mark) {
        self.0[mark as usize] += 1;
    }

    fn has(self, mark: Mark) -> bool {
        self.0[mark as usize] > 0
    }

    /// Counts that more than half of the rows reach, because no single row may decide.
    pub(crate) fn of_most(self, rows: usize) -> Self {
        Self(self.0.map(|count| if 2 * count > rows { count } else { 0 }))
    }

    /// Certain ones of either kind.
    fn has_certain(self) -> bool {
        self.has(Mark::Comma) || self.has(Mark::Point)
    }

    /// Only commas that may separate thousands.
    pub(crate) fn are_only_doubtful_commas(self) -> bool {
        self.has(Mark::DoubtfulComma) && !self.has_certain() && !self.has(Mark::DoubtfulPoint)
    }

    /// Only points that may separate thousands, beside smaller numbers without any, as a column of whole numbers has.
    pub(crate) fn are_only_doubtful_points(self) -> bool {
        let only = !self.has_certain() && !self.has(Mark::DoubtfulComma);
        self.has(Mark::DoubtfulPoint) && self.has(Mark::Whole) && only
    }

    /// Nothing in a file shows whether its commas or points separate thousands.
    pub(crate) fn show_nothing(self) -> bool {
        !self.has_certain() && (self.has(Mark::DoubtfulComma) || self.has(Mark::DoubtfulPoint))
    }

    /// Both notations: 1.234 beside 1,5.
    pub(crate) fn are_mixed(self) -> bool {
        let commas = self.has(Mark::Comma) || self.has(Mark::DoubtfulComma);
        commas && (self.has(Mark::Point) || self.has(Mark::DoubtfulPoint))
    }

    /// Whether numbers of a column are thousands if they are written as the other columns of its file are.
    pub(crate) fn are_in_doubt(self, file: Self) -> bool {
        let commas =
            file.has(Mark::Comma) || (file.has(Mark::DoubtfulComma) && !file.has(Mark::Point));
        let points =
            file.has(Mark::Point) || (file.has(Mark::DoubtfulPoint) && !file.has(Mark::Comma));
        let doubtful =
            (commas && self.has(Mark::DoubtfulPoint)) || (points && self.has(Mark::DoubtfulComma));
        doubtful && !self.has_certain() && !self.are_mixed()
    }

    pub(crate) fn are_styled(self) -> bool {
        self.has(Mark::Styled)
    }
}

impl std::ops::Add for Marks {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|mark| self.0[mark] + other.0[mark]))
    }
}
