//! What a study tells the people it invites: its purpose, who is responsible, how to reach them, its last day, and what
//! its features mean.
//!
//! None of it is a parameter: it is not in the fingerprint and says nothing about what a report reveals. It is fixed
//! when the study is made, since people agreed to what they read; a device keeps what it was told with its receipt.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, error};

/// Longest purpose in bytes.
pub const MAX_PURPOSE: usize = 1_000;
/// Longest name of a responsible party in bytes.
pub const MAX_RESPONSIBLE: usize = 200;
/// Longest contact in bytes: an e-mail address has 254 at most.
pub const MAX_CONTACT: usize = 254;
/// Longest label of a feature in bytes.
pub const MAX_LABEL: usize = 100;
/// Longest unit of a feature in bytes.
pub const MAX_UNIT: usize = 40;
/// Longest description of a feature in bytes.
pub const MAX_DESCRIPTION: usize = 300;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// The notice of a study to the people it invites. A field that is `None` is shown as "not stated".
///
/// ```
/// use eigenveil_shared::about::StudyNotice;
/// let about = StudyNotice {
///     purpose: Some("What makes people sleep badly".to_owned()),
///     responsible_party: Some("Sleep laboratory, University of Example".to_owned()),
///     contact: Some("sleep@example.org".to_owned()),
///     last_day: Some("2027-03-31".parse()?),
///     features: None,
/// };
/// about.check()?;
/// assert_eq!(about.contact_link().as_deref(), Some("mailto:sleep@example.org"));
/// // A link that does something else than reach somebody is refused.
/// let trap = StudyNotice { contact: Some("javascript:alert(1)".to_owned()), ..about };
/// assert!(trap.check().is_err() && trap.contact_link().is_none());
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StudyNotice {
    /// Purpose of the results; at most 1,000 bytes.
    #[cfg_attr(feature = "openapi", schema(max_length = 1_000))]
    pub purpose: Option<String>,
    /// The person or organisation that answers for the study; at most 200 bytes.
    #[cfg_attr(feature = "openapi", schema(max_length = 200))]
    pub responsible_party: Option<String>,
    /// How to reach them: an e-mail address, or an address that begins with `https://`; at most 254 bytes.
    #[cfg_attr(feature = "openapi", schema(max_length = 254))]
    pub contact: Option<String>,
    /// The last day on which reports are taken, UTC; `null`: until somebody closes the study.
    pub last_day: Option<UtcDate>,
    /// Meanings of the features, in their order; absent: their names say them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<FeatureNotice>>,
}

/// The meaning of a feature, for people to read. A field that is `None` is not shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FeatureNotice {
    /// The name that people use; at most 100 bytes.
    #[cfg_attr(feature = "openapi", schema(max_length = 100))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Unit of its values; at most 40 bytes.
    #[cfg_attr(feature = "openapi", schema(max_length = 40))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Exactly the quantity that is asked for; at most 300 bytes.
    #[cfg_attr(feature = "openapi", schema(max_length = 300))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl fmt::Display for FeatureNotice {
    /// Label, unit and description in a line: "Age (years): at the last birthday".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.label.clone();
        let unit = self.unit.as_ref().map(|unit| format!("({unit})"));
        let named: Vec<String> = label.into_iter().chain(unit).collect();
        let parts = [Some(named.join(" ")), self.description.clone()];
        let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
        f.write_str(&parts.collect::<Vec<_>>().join(": "))
    }
}

impl StudyNotice {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The notice, which says what `other` says where it says nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            purpose: self.purpose.or(other.purpose),
            responsible_party: self.responsible_party.or(other.responsible_party),
            contact: self.contact.or(other.contact),
            last_day: self.last_day.or(other.last_day),
            features: self.features.or(other.features),
        }
    }

    /// Names of the fields that are not stated, in the words of the people who are asked.
    pub fn missing(&self) -> Vec<&'static str> {
        let stated = [
            (self.purpose.is_some(), "purpose"),
            (self.responsible_party.is_some(), "responsible party"),
            (self.contact.is_some(), "contact"),
            (self.last_day.is_some(), "last day"),
        ];
        stated
            .into_iter()
            .filter_map(|(stated, what)| (!stated).then_some(what))
            .collect()
    }

    /// Refuses text that cannot be displayed, and invalid contacts.
    ///
    /// # Errors
    /// `invalid-about`, of the field `purpose`, `responsible_party`, `contact` or `features`.
    pub fn check(&self) -> Result<()> {
        let responsible = &self.responsible_party;
        for (field, text, most) in [
            ("purpose", &self.purpose, MAX_PURPOSE),
            ("responsible_party", responsible, MAX_RESPONSIBLE),
            ("contact", &self.contact, MAX_CONTACT),
        ] {
            let name = || field.replace('_', " ");
            check_text(text.as_deref(), most, field, name)?;
        }
        for (number, feature) in (1..).zip(self.features.iter().flatten()) {
            for (word, text, most) in [
                ("label", &feature.label, MAX_LABEL),
                ("unit", &feature.unit, MAX_UNIT),
                ("description", &feature.description, MAX_DESCRIPTION),
            ] {
                let name = || format!("{word} of feature {number}");
                check_text(text.as_deref(), most, "features", name)?;
            }
        }
        match &self.contact {
            Some(contact) if !is_address(contact) && !is_link(contact) => Err(error!(
                InvalidNotice,
                "the contact is {contact:?}; give an e-mail address such as study@example.org, or a page such as https://example.org/study"
            )
            .with_field("contact")),
            _ => Ok(()),
        }
    }

    /// Refuses notices of features that are not one for each of the study's named features.
    ///
    /// # Errors
    /// `invalid-about`, of the field `features`.
    pub fn check_features(&self, named: usize) -> Result<()> {
        match self.features.as_ref().map(Vec::len) {
            Some(described) if described != named => Err(error!(
                InvalidNotice,
                "{described} features are described for participants but {named} have names; describe each, or none"
            )
            .with_field("features")),
            _ => Ok(()),
        }
    }

    /// The meaning of the feature at this place, if the study says it.
    pub fn feature(&self, at: usize) -> Option<&FeatureNotice> {
        let notice = self.features.as_ref()?.get(at)?;
        (*notice != FeatureNotice::default()).then_some(notice)
    }

    /// The first term people consent to (purpose, responsible party, meaning of a feature) that differs from `other`:
    /// its name and both texts.
    pub fn first_changed_term(
        &self,
        other: &Self,
    ) -> Option<(String, Option<String>, Option<String>)> {
        let meaning = |of: &Self, at| of.feature(at).map(ToString::to_string);
        let described = |of: &Self| of.features.as_ref().map_or(0, Vec::len);
        let features = (0..described(self).max(described(other))).map(|at| {
            let name = format!("meaning of feature {}", at + 1);
            (name, meaning(self, at), meaning(other, at))
        });
        let (own, others) = (&self.responsible_party, &other.responsible_party);
        let terms = [
            ("purpose", &self.purpose, &other.purpose),
            ("responsible party", own, others),
        ];
        terms
            .into_iter()
            .map(|(term, here, there)| (term.to_owned(), here.clone(), there.clone()))
            .chain(features)
            .find(|(_, here, there)| here != there)
    }

    /// Where a link to the contact leads: `mailto:` or `https://`, and never anywhere else.
    pub fn contact_link(&self) -> Option<String> {
        let contact = self.contact.as_deref()?;
        if is_address(contact) {
            Some(format!("mailto:{contact}"))
        } else {
            is_link(contact).then(|| contact.to_owned())
        }
    }

    /// Whether the last day is over at this time, in milliseconds since 1970-01-01 UTC.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.last_day.is_some_and(|day| day.is_over(now_ms))
    }
}

/// Refuses a text that is too long or cannot be read.
fn check_text(
    text: Option<&str>,
    most: usize,
    field: &'static str,
    name: impl Fn() -> String,
) -> Result<()> {
    match text {
        Some(text) if text.len() > most || !is_readable(text) => Err(error!(
            InvalidNotice,
            "the {} has {} bytes; it must be one line of 1 to {most} bytes of printable text. Leave it out if you have nothing to say",
            name(),
            text.len()
        )
        .with_field(field)),
        _ => Ok(()),
    }
}

/// The error for a study whose last day is over: on the server when a report comes, on a device before it makes one.
pub fn study_ended_error(study: &str, day: UtcDate, and: &str) -> Error {
    error!(
        StudyEnded,
        "study {study} took reports until the end of {day} (UTC), which is over; {and}"
    )
}

/// Whether people can read a text, and read what is there: one line, something to see in it, and nothing that controls
/// a terminal or turns the direction of what follows. Names of studies and of features are held to the same.
pub fn is_readable(text: &str) -> bool {
    text.chars().all(is_shown) && text.chars().any(is_visible)
}

/// Neither a control character nor one that turns the direction of what follows, annotates it or tags it, which would
/// show another text than there is.
pub fn is_shown(c: char) -> bool {
    !(c.is_control()
        || matches!(c,
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'))
}

/// Whether there is something to see: no blank, and none of Unicode's characters that are ignored where a font lacks
/// them (`Default_Ignorable_Code_Point`), such as the joiners that scripts and emoji need between others.
pub fn is_visible(c: char) -> bool {
    !(c.is_whitespace()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2065}' | '\u{2800}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'))
}

/// An e-mail address as nearly everybody has it: no quotes, no comments, nothing that means something in a link.
fn is_address(text: &str) -> bool {
    let Some((local, host)) = text.split_once('@') else {
        return false;
    };
    let signs = |b: u8| b.is_ascii_alphanumeric() || b"._+-".contains(&b);
    text.len() <= MAX_CONTACT
        && (1..=64).contains(&local.len())
        && local.bytes().all(signs)
        && is_domain_name(host)
}

/// A page over TLS, without a user's name before the host, which could pass for the host.
fn is_link(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("https://") else {
        return false;
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (host, port) = authority.split_once(':').unwrap_or((authority, "443"));
    text.len() <= MAX_CONTACT
        && is_domain_name(host)
        && port.bytes().all(|b| b.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0)
        && path
            .bytes()
            .all(|b| b.is_ascii_graphic() && !b"\"'<>\\^`{|}".contains(&b))
}

/// A name of labels with a dot between them.
fn is_domain_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    host.len() <= 253 && host.contains('.') && host.split('.').all(label)
}

/// A day, UTC: whole days since 1970-01-01. `Display` and JSON write it as `2027-03-31`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcDate(pub u64);

impl UtcDate {
    /// The day of this time, in milliseconds since 1970-01-01 UTC.
    pub fn from_unix_ms(now_ms: u64) -> Self {
        Self(now_ms / DAY_MS)
    }

    /// The first millisecond after the day, since 1970-01-01 UTC.
    pub fn end_ms(self) -> u64 {
        self.0.saturating_add(1).saturating_mul(DAY_MS)
    }

    /// Whether the day is over at this time, in milliseconds since 1970-01-01 UTC.
    pub fn is_over(self, now_ms: u64) -> bool {
        now_ms >= self.end_ms()
    }
}

impl fmt::Display for UtcDate {
    /// The Gregorian date (Hinnant, "chrono-compatible low-level date algorithms": years begin in March, so that the
    /// leap day comes last).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Beyond any calendar; a clock that is wrong must not overflow.
        let day = self.0.min(u64::MAX / 2) + 719_468;
        let (era, of_era) = (day / 146_097, day % 146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day_of_month = of_year - (153 * from_march + 2) / 5 + 1;
        let month = (from_march + 2) % 12 + 1;
        let year = year + 400 * era + u64::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day_of_month:02}")
    }
}

impl FromStr for UtcDate {
    type Err = Error;

    /// Reads `2027-03-31`: a day from 1970 to 9999 that the calendar has.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            error!(
                InvalidNotice,
                "the last day is {text:?}; it is a date such as 2027-03-31 (year-month-day, UTC)"
            )
        };
        let digits = text.bytes().enumerate().all(|(i, b)| match i {
            4 | 7 => b == b'-',
            _ => b.is_ascii_digit(),
        });
        if text.len() != 10 || !digits {
            return Err(wrong());
        }
        let number = |from: usize, to: usize| text[from..to].parse::<u64>().map_err(|_| wrong());
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        if year < 1970 || !(1..=12).contains(&month) {
            return Err(wrong());
        }
        // The inverse of `Display`, by the same source.
        let of_march = (month + 9) % 12;
        let year = year - u64::from(month <= 2);
        let (era, of_era) = (year / 400, year % 400);
        let of_year = (153 * of_march + 2) / 5 + day.saturating_sub(1);
        let days = era * 146_097 + 365 * of_era + of_era / 4 - of_era / 100 + of_year;
        let found = days.checked_sub(719_468).map(Self).ok_or_else(wrong)?;
        // A 30 February is a day of March.
        (found.to_string() == text)
            .then_some(found)
            .ok_or_else(wrong)
    }
}

serialized_as_text!(UtcDate);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn unprintable_text_is_rejected() {
        let good = "a| a |नमस्ते|می\u{200c}خواهم|👩\u{200d}🔬|❤\u{fe0f}|\u{200f}שלום";
        for good in good.split('|') {
            assert!(is_readable(good), "{good:?}");
        }
        let blank = "| |\u{a0}|\u{200b}|\u{ad}\u{34f}|\u{2800}|\u{3164}|\u{fe0f}";
        let turned = "a\u{202e}b|a\u{2066}b|a\u{2028}b|a\u{fff9}b|a\u{e0041}";
        let controls = "a\u{1b}[2J|a\u{7f}|a\u{9b}|a\nb|a\u{0}";
        for bad in [blank, turned, controls]
            .iter()
            .flat_map(|all| all.split('|'))
        {
            assert!(!is_readable(bad), "{bad:?}");
        }
    }

    #[test]
    fn days_are_written_and_read() {
        for (day, text) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (789, "1972-02-29"),
            (790, "1972-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (11_322, "2000-12-31"),
            (20_526, "2026-03-14"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
            (2_932_896, "9999-12-31"),
        ] {
            assert_eq!(UtcDate(day).to_string(), text);
            assert_eq!(text.parse::<UtcDate>(), Ok(UtcDate(day)));
        }
        for day in (0..60_000).map(UtcDate) {
            assert_eq!(day.to_string().parse(), Ok(day));
        }
        let wrong = "2027 2027-3-31 2027-02-29 2100-02-29 2027-04-31 2027-00-10 2027-13-01 2027-01-00
            2027-01-32 1969-12-31 31.03.2027 2027-03-31T00:00:00Z +027-03-31 2027/03/31 ２０２７-03-31";
        for wrong in wrong.split_whitespace().chain(["", " 2027-03-31"]) {
            let error = wrong.parse::<UtcDate>().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidNotice, "{wrong}");
        }
        assert!(!UtcDate(u64::MAX).is_over(u64::MAX - 1));
        let _ = UtcDate(u64::MAX).to_string();
    }

    #[test]
    fn contacts_are_mail_addresses_or_https_links() {
        let about = |contact: &str| StudyNotice {
            contact: Some(contact.to_owned()),
            ..StudyNotice::default()
        };
        for (scheme, contact) in [
            ("mailto:", "a@b.org"),
            ("mailto:", "first.last+study@mail.example-1.co.uk"),
            ("", "https://example.org"),
            ("", "https://example.org:8443/study?id=7#contact"),
        ] {
            assert_eq!(about(contact).check(), Ok(()), "{contact}");
            let link = about(contact).contact_link();
            assert_eq!(link, Some(format!("{scheme}{contact}")));
        }
        let long = format!("{}@example.org", "a".repeat(65));
        let longer = format!("https://example.org/{}", "a".repeat(MAX_CONTACT));
        let contacts = r#"somebody a@b @b.org a@b@c.org a@b..org a@-b.org a@b.org?bcc=x@y.org a%40b@c.org
            "a"@b.org mailto:a@b.org javascript:alert(1) JavaScript:alert(1)//@b.org data:text/html,x
            http://example.org HTTPS://example.org https:// https://localhost https://example.org:0
            https://example.org:x https://example.org:+443/ https://bank.example@evil.example https://example.org/"onclick=x
            https://example.org/<b>"#;
        let spaced = "| |+44 20 7946 0000|a b@c.org|https://exa mple.org|https://example.org/\u{202e}gro|a@b.org\nBcc: c@d.org";
        let contacts = contacts.split_whitespace().chain(spaced.split('|'));
        for contact in contacts.chain([long.as_str(), &longer]) {
            let error = about(contact).check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidNotice, "{contact}");
            assert_eq!(error.field(), Some("contact"));
            assert_eq!(about(contact).contact_link(), None, "{contact}");
        }
    }

    #[test]
    fn texts_are_short_and_can_be_printed() {
        let with = |text: &str| {
            let text = || Some(text.to_owned());
            let (mut purpose, mut party) = (StudyNotice::default(), StudyNotice::default());
            (purpose.purpose, party.responsible_party) = (text(), text());
            [purpose, party]
        };
        let quoted = "Was Leute wach hält: <b>\"Schlaf\" & 'Traum'</b>";
        for text in ["x", quoted, &"é".repeat(MAX_RESPONSIBLE / 2)] {
            assert!(with(text).iter().all(|own| own.check().is_ok()), "{text}");
        }
        for text in ["", "a\u{1b}[2Jb", &"x".repeat(MAX_PURPOSE + 1)] {
            for about in with(text) {
                assert_eq!(about.check().unwrap_err().code(), ErrorCode::InvalidNotice);
            }
        }
        assert_eq!(with(&"x".repeat(MAX_PURPOSE))[0].check(), Ok(()));
        assert!(with(&"x".repeat(MAX_RESPONSIBLE + 1))[1].check().is_err());
    }

    #[test]
    fn features_are_described_each_or_none() {
        let feature = |label: &str, unit: &str, description: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            FeatureNotice {
                label: some(label),
                unit: some(unit),
                description: some(description),
            }
        };
        for (notice, text) in [
            (
                feature("Age", "years", "at the last birthday"),
                "Age (years): at the last birthday",
            ),
            (feature("Age", "", ""), "Age"),
            (feature("", "years", ""), "(years)"),
            (feature("", "", "in whole years"), "in whole years"),
            (FeatureNotice::default(), ""),
        ] {
            assert_eq!(notice.to_string(), text);
        }
        let about = |features: Vec<FeatureNotice>| StudyNotice {
            features: Some(features),
            ..StudyNotice::default()
        };
        let two = about(vec![feature("Age", "", ""), FeatureNotice::default()]);
        assert!(two.check().is_ok() && two.check_features(2).is_ok() && !two.is_empty());
        assert!(two.feature(0).is_some() && two.feature(1).is_none() && two.feature(2).is_none());
        let text = serde_json::to_string(&two).unwrap();
        assert!(
            text.ends_with(r#""features":[{"label":"Age"},{}]}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<StudyNotice>(&text).unwrap(), two);
        assert!(StudyNotice::default().check_features(7).is_ok());
        // Another meaning is a term that changed; a feature without one is as one that nobody described.
        let other = about(vec![feature("Age", "", ""), feature("Income", "", "")]);
        let (term, before, now) = two.first_changed_term(&other).unwrap();
        assert_eq!(term, "meaning of feature 2");
        assert_eq!((before, now.as_deref()), (None, Some("Income")));
        let empty = about(vec![FeatureNotice::default(); 2]);
        assert_eq!(empty.first_changed_term(&StudyNotice::default()), None);
        for named in [0, 1, 3] {
            let error = two.check_features(named).unwrap_err();
            assert_eq!(
                (error.code(), error.field()),
                (ErrorCode::InvalidNotice, Some("features"))
            );
        }
        for (wrong, what) in [
            (
                feature(&"x".repeat(MAX_LABEL + 1), "", ""),
                "the label of feature 2",
            ),
            (feature("", "a\u{202e}b", ""), "the unit of feature 2"),
            (
                feature("", "", &"x".repeat(MAX_DESCRIPTION + 1)),
                "the description of feature 2",
            ),
        ] {
            let error = about(vec![FeatureNotice::default(), wrong])
                .check()
                .unwrap_err();
            assert!(error.detail().starts_with(what), "{error}");
            assert_eq!(error.field(), Some("features"));
        }
    }

    #[test]
    fn json_of_today_and_of_before() {
        let about = StudyNotice {
            purpose: Some("p".to_owned()),
            last_day: Some("2027-03-31".parse().unwrap()),
            ..StudyNotice::default()
        };
        let text = serde_json::to_string(&about).unwrap();
        assert_eq!(
            text,
            r#"{"purpose":"p","responsible_party":null,"contact":null,"last_day":"2027-03-31"}"#
        );
        assert_eq!(serde_json::from_str::<StudyNotice>(&text).unwrap(), about);
        assert_eq!(about.missing(), ["responsible party", "contact"]);
        let nothing: StudyNotice = serde_json::from_str("{}").unwrap();
        assert!(nothing.is_empty() && nothing.check().is_ok() && !nothing.is_over(u64::MAX));
        for wrong in [
            r#"{"last_day":"soon"}"#,
            r#"{"last_day":20000}"#,
            r#"{"purpos":"p"}"#,
        ] {
            assert!(
                serde_json::from_str::<StudyNotice>(wrong).is_err(),
                "{wrong}"
            );
        }
    }
}
