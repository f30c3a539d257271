//! What an analyst must know before relying on an estimate. A warning is a code and values; its sentence is made here
//! alone.

use std::fmt;

use eigenveil_shared::{
    estimate::{BucketAgreement, ComponentGroup, SeedCheck, SquaredNormCheck},
    privacy::delta_above,
    wording::{MAX_NAMED, first_few, percent},
};

use crate::report::format::{in_words, three_digits, with_thousands};

/// Participants that would show components which do not stand above the noise; both numbers have two digits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outlook {
    /// Components asked for.
    pub k: usize,
    /// How many of them are not seen.
    pub unseen: usize,
    /// Share of the variance of unit rows, beyond the other directions', that each of them is taken to hold.
    pub share: f64,
    /// Participants below which they hardly ever show: with so many in half of such studies at most, with three times as
    /// many nearly always.
    pub needed: Option<u64>,
    /// Fewer cannot be enough, whatever the rows.
    pub at_least: Option<u64>,
}

/// A warning; `Display` is its sentence, which says what the values are.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
#[rustfmt::skip]
pub enum Warning {
    /// No component stands above the noise.
    NothingStands { n: u64, setting: String, largest: f64, threshold: f64, outlook: Outlook },
    /// Only the first of the components asked for stand above it.
    FewStand { standing: usize, k: usize },
    /// Number of participants that would show the others.
    MoreParticipants(Outlook),
    /// All components are asked for: this many dimensions.
    AllDimensions(usize),
    /// These, by number, lie towards an estimated mean and only just above the noise.
    TowardsMean(Vec<usize>),
    /// Components whose space is known and whose directions are not.
    Inseparable(ComponentGroup),
    /// Components of which neither is.
    Unstable(ComponentGroup),
    /// The last component asked for changes places with others that stand above the noise.
    ChangesPlaces { k: usize, visible: usize },
    /// These, by number, have no stable direction.
    NoDirection(Vec<usize>),
    /// The first component is probably the rows' mean: its clear loadings have one sign, or its share is large.
    ProbablyTheMean { of_one_sign: Option<usize>, share: Option<f64> },
    /// The sparse solver stopped where noise hides the rest.
    SolverWithinNoise { iterations: usize, gap: f64 },
    /// The sparse solver stopped at its limit.
    SolverLimit { iterations: usize, gap: f64 },
    /// The sparse solver, from seeds, did not reach its tolerance.
    SolverTolerance { gap: f64, candidates: usize, limit: usize },
    /// To select features could by itself lift noise to the floor.
    Selection { selected: usize, of: usize },
    /// Buckets disagree.
    BucketsDisagree(BucketAgreement),
    /// Eigenvalues that no rows can have.
    TooLong(SquaredNormCheck),
    /// More seeds near a direction than devices send.
    ChosenSeeds { check: SeedCheck, reports: u64 },
    /// Missing cells are corrected only roughly.
    RoughMissingCells,
    /// Reports that hold no row: their share, and its standard deviation.
    ZeroRows { share: f64, deviation: f64 },
    /// Seeds that came more than once, beside the n that count.
    RepeatedSeeds { repeated: u64, n: u64 },
    /// Sites, by name, whose means or whose moments are not like those of the others; of the undecided ones the others
    /// are alike without any one.
    SitesDiffer { means: Vec<String>, moments: Vec<String>, undecided: Vec<String>, of: usize },
    /// δ is above one over the number of participants, or of the rows of all tables.
    LargeDelta { delta: f64, n: u64, whom: &'static str },
}

impl Warning {
    /// The stable code, for programs.
    pub fn code(&self) -> &'static str {
        self.parts().0
    }

    #[rustfmt::skip]
    fn parts(&self) -> (&'static str, String) {
        let which = |numbers: &[usize], one: &str, many: &str| {
            let named = one_or(numbers.len(), "Component", "Components");
            let all: Vec<String> = numbers.iter().map(usize::to_string).collect();
            format!("{named} {} {}", all.join(", "), one_or(numbers.len(), one, many))
        };
        match self {
            Self::NothingStands {
                n,
                setting,
                largest,
                threshold,
                outlook,
            } => {
                let (n, space) = (with_thousands(*n), if outlook.is_known() { " " } else { "" });
                let (largest, threshold) = (three_digits(*largest), three_digits(*threshold));
                ("nothing-above-noise", format!("At n = {n} and {setting} no component stands above the noise: the largest eigenvalue is {largest}, and noise alone reaches about {threshold}.{space}{outlook}"))
            }
            Self::FewStand { standing, k } => {
                let others = one_or(k - standing, "the other one is", "the others are");
                let (count, out) = (one_or(k - standing, "counts", "count"), one_or(k - standing, "it", "them"));
                ("few-above-noise", format!("Only {standing} of the {k} components asked for stand above the noise; {others} mostly noise, and {count} as lost in the expected error, which is cautious then. Ask for k = {standing} to leave {out} out: for so many a plan with this estimate as its pilot says what other numbers of participants would give."))
            }
            Self::MoreParticipants(outlook) => ("more-participants", outlook.to_string()),
            Self::AllDimensions(k) => ("all-dimensions", format!("All {k} dimensions were asked for: the subspace is the whole space, and there is no noise bulk to measure.")),
            Self::TowardsMean(numbers) => {
                let lie = which(numbers, "lies", "lie");
                ("towards-mean", format!("{lie} towards the estimated mean and only just above the noise: removing an estimated mean adds noise in that direction, so this is not evidence of a component."))
            }
            Self::Inseparable(group) => ("inseparable-components", format!("Components {} cannot be told apart at this noise: the space that they span together is meaningful{}, their single directions are much less certain.", group.range(), known_to(group))),
            Self::Unstable(group) => ("unstable-components", format!("Components {} stand above the noise, but neither their directions nor the space they span are stable across the parts of the reports{}.", group.range(), known_to(group))),
            Self::ChangesPlaces { k, visible } => ("component-changes-places", format!("Component {k} changes places with components that were not asked for: {visible} stand above the noise. Ask for more than {k}, or for fewer.")),
            Self::NoDirection(numbers) => {
                let exceed = which(numbers, "exceeds", "exceed");
                let are = one_or(numbers.len(), "its direction is", "their directions are");
                ("no-direction", format!("{exceed} what noise alone reaches, but {are} not stable across the parts of the reports (error bar above 45°), so the verdict is \"at the noise floor\"."))
            }
            Self::ProbablyTheMean { of_one_sign, share } => {
                let (or_column, reason) = match of_one_sign {
                    Some(count) => ("", format!("its {count} clear loadings all have one sign")),
                    None => {
                        let share = percent(share.unwrap_or_default().min(1.0));
                        let reason = format!("it holds {share} of the rows' squared length");
                        (" (or one column in much smaller units than the others)", reason)
                    }
                };
                ("probably-the-mean", format!("Component 1 is probably the mean of the rows{or_column}, not a direction in which they differ: this study subtracts no center, and {reason}. Unless they were centred before, more participants will not change that: create a study with centers or with private centring."))
            }
            Self::SolverWithinNoise { iterations, gap } => ("solver-within-noise", format!("The sparse solver stopped after {iterations} iterations at a relative duality gap of {gap:.1e}: the rest is less than 1 % of the noise's own effect on the objective. Such slow convergence is common where noise hides the signal.")),
            Self::SolverLimit { iterations, gap } => ("solver-limit", format!("The sparse solver stopped at its limit of {iterations} iterations with a relative duality gap of {gap:.1e}; raise max_iterations or the tolerance.")),
            Self::SolverTolerance { gap, candidates, limit } => ("solver-tolerance", format!("The sparse solver reached a relative duality gap of {gap:.1e} with {candidates} candidate rows (at most {limit}) and not its tolerance: lambda may be too small for the noise; raise it, max_iterations or the tolerance.")),
            Self::Selection { selected, of } => ("selection", format!("Selecting {selected} of {of} features could by itself lift noise as high as the components marked \"at\" the floor; the expected error assumes that the right features were selected.")),
            Self::BucketsDisagree(found) => {
                let disagree = one_or(found.suspicious_buckets, "disagrees", "disagree");
                let BucketAgreement { suspicious_buckets, buckets, statistic, threshold, shift, .. } = found;
                ("buckets-disagree", format!("{suspicious_buckets} of the {buckets} buckets of reports {disagree} with the others more than noise and sampling explain ({statistic:.1} standard deviations; reports of one kind reach {threshold:.1} in one study of 1,000): a poisoned or broken batch may be in the sums, and it moves the estimate along one direction by {shift:.2e}. Look at where the reports came from before you rely on the components."))
            }
            Self::TooLong(SquaredNormCheck { directions, found, limit }) => {
                let which = match directions {
                    1 => "an eigenvalue".to_owned(),
                    many => format!("{many} eigenvalues that add up to"),
                };
                ("rows-too-long", format!("The reports have {which} {found:.3}, which no rows can have: the eigenvalues of rows in the unit ball add up to 1 at most, and with noise to {limit:.3} at most in all but one study of 2,000. Reports that no device made are in the sums: do not rely on the components."))
            }
            Self::ChosenSeeds { check, reports } => {
                let SeedCheck { found, expected, limit, .. } = check;
                let location = match (check.is_subspace, check.direction) {
                    (true, many) => format!("the space of the {many} leading directions"),
                    (false, which) => format!("direction {which} of the reports"),
                };
                let one_in = check.null_probability.recip();
                let percent = 100.0 * (*found as f64 - expected) / *reports as f64;
                ("chosen-seeds", format!("{found} of {reports} seeds lie closer to {location} than one in {one_in:.0} random seeds; devices send at most {expected:.1} such seeds on average, whatever the rows, and {limit} or more in one study of 2,000. Seeds were chosen to turn the components, at least {percent:.2} % of them: do not rely on the components."))
            }
            Self::RoughMissingCells => ("rough-missing-cells", "Missing cells are corrected only roughly here: participants differ much in how many of their few features, or of their large sections, they have, and a row is brought to its length by those it has. Variances and directions may be off by more than the error bars and the expected error say; with rows that are required to lie in a ball the correction is exact.".to_owned()),
            Self::ZeroRows { share, deviation } => {
                let (percent, open) = (100.0 * share, 100.0 * deviation);
                ("zero-rows", format!("About {percent:.1} % ± {open:.1} % of the reports hold no row: devices sent zero rows, as for a missing or infinite value. Variances are too small by as much; ask those who hold the rows to check them before they report."))
            }
            Self::RepeatedSeeds { repeated, n } => {
                let repeat = one_or(*repeated as usize, "report repeats", "reports repeat");
                let (repeated, n) = (with_thousands(*repeated), with_thousands(*n));
                ("repeated-seeds", format!("{repeated} {repeat} the seed of another report, which honest devices do not do (two seeds are equal once in 10³⁸): each seed is counted once, and they are not among the {n} reports of this estimate. Somebody sends made-up reports, or a device sends one report again under new identifiers."))
            }
            Self::SitesDiffer { means, moments, undecided, of } => {
                let count = means.len() + moments.len();
                let named = |sites: &[String]| first_few(sites.iter().cloned(), MAX_NAMED, |more| format!(" and {more} more"));
                let (are, open) = match undecided.is_empty() {
                    true => (one_or(count, "is not like the others", "are not like the others"), String::new()),
                    false => ("stand out", format!(" Of {} nobody can tell which one differs: the others are alike without any one of them.", named(undecided))),
                };
                let ways = [(means, "means"), (moments, "spread")].into_iter().filter(|(sites, _)| !sites.is_empty());
                let ways = ways.map(|(sites, way)| format!("{} in {} {way}", named(sites), one_or(sites.len(), "its", "their")));
                let ways: Vec<String> = ways.collect();
                ("sites-differ", format!("{count} of the {of} sites {are}: {} (of alike sites noise and sampling alone say that in one study of 1,000).{open} The components are those of the rows of all sites together, to which differences between sites belong: look at how these tables were made before you rely on them.", ways.join("; ")))
            }
            Self::LargeDelta { delta, n, whom } => ("large-delta", delta_above(*delta, *n, whom).unwrap_or_default()),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().1)
    }
}

impl Outlook {
    /// Whether it has a number to say.
    pub fn is_known(&self) -> bool {
        self.needed.is_some() || self.at_least.is_some()
    }
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sentences = Vec::new();
        if let Some(n) = self.needed {
            let (which, holder) = match self.k {
                1 => ("one".to_owned(), "it"),
                k if self.unseen < k => (first_in_words(k), "each of those not seen"),
                k => (first_in_words(k), "each"),
            };
            sentences.push(format!(
                "At least {} participants would be needed for {which} if {holder} held {:.1} % of the variance of unit rows more than the other directions do; then half of such studies at most would show that, and with three times as many nearly all.",
                in_words(n),
                100.0 * self.share
            ));
        }
        sentences.extend(self.at_least.map(|n| {
            let n = in_words(n);
            format!("Fewer than {n} cannot be enough, whatever the rows.")
        }));
        f.write_str(&sentences.join(" "))
    }
}

fn one_or<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

fn known_to(group: &ComponentGroup) -> String {
    let degrees = group.subspace_se.map(|sine| sine.asin().to_degrees());
    degrees.map_or_else(String::new, |open| format!(" (known to ±{open:.0}°)"))
}

/// "the first three".
fn first_in_words(k: usize) -> String {
    const WORDS: [&str; 9] = [
        "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    ];
    match k.checked_sub(2).and_then(|place| WORDS.get(place)) {
        Some(word) => format!("the first {word}"),
        None => format!("the first {k}"),
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::estimate::{BucketVerdict, Verdict};

    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(first_in_words(3), "the first three");
        assert_eq!(first_in_words(11), "the first 11");
    }

    /// Each warning has a code of its own, and a sentence with its values.
    #[test]
    #[rustfmt::skip]
    fn every_warning_says_its_values() {
        let outlook = Outlook { k: 3, unseen: 2, share: 0.1, needed: Some(2_100_000), at_least: Some(340_000) };
        let group = ComponentGroup { first: 2, last: 4, verdict: Verdict::Above, variance: 0.1, explained_variance_ratio: None, alignment: Some(0.5), subspace_se: Some(0.5) };
        let disagreement = BucketAgreement { buckets: 32, statistic: 9.87, threshold: 4.32, false_alarm_rate: 1e-3, verdict: BucketVerdict::Disagree, suspicious_buckets: 2, shift: 0.012 };
        let length = SquaredNormCheck { directions: 3, found: 1.25, limit: 1.125 };
        let seeds = SeedCheck { direction: 5, is_subspace: false, null_probability: 1e-4, found: 81, expected: 2.0, limit: 17, sampled: None };
        let nothing = Warning::NothingStands { n: 1_797, setting: "ε = 1".to_owned(), largest: 0.25, threshold: 0.5, outlook };
        let cases = [
            (nothing, "n = 1,797 and ε = 1|is 0.250|about 0.500. At least 2.1 million|than 340,000"),
            (Warning::FewStand { standing: 2, k: 3 }, "2 of the 3|the other one is|k = 2"),
            (Warning::MoreParticipants(outlook), "the first three|10.0 %|not seen"),
            (Warning::AllDimensions(7), "All 7"),
            (Warning::TowardsMean(vec![2, 3]), "Components 2, 3 lie"),
            (Warning::Inseparable(group.clone()), "2–4|±30°|told apart"),
            (Warning::Unstable(group), "2–4|±30°|neither"),
            (Warning::ChangesPlaces { k: 2, visible: 3 }, "Component 2|3 stand"),
            (Warning::NoDirection(vec![4]), "Component 4 exceeds|its direction"),
            (Warning::ProbablyTheMean { of_one_sign: Some(9), share: None }, "its 9 clear"),
            (Warning::SolverWithinNoise { iterations: 300, gap: 0.01 }, "300|1.0e-2"),
            (Warning::SolverLimit { iterations: 2, gap: 0.5 }, "limit of 2|5.0e-1"),
            (Warning::SolverTolerance { gap: 0.5, candidates: 40, limit: 900 }, "5.0e-1|40|900"),
            (Warning::Selection { selected: 6, of: 60 }, "6 of 60"),
            (Warning::BucketsDisagree(disagreement), "2 of the 32|9.9|4.3|1.20e-2"),
            (Warning::TooLong(length), "3 eigenvalues|1.250|1.125"),
            (Warning::ChosenSeeds { check: seeds, reports: 1_000 }, "81 of 1000|direction 5|10000|2.0|17|7.90 %"),
            (Warning::RoughMissingCells, "roughly"),
            (Warning::ZeroRows { share: 0.05, deviation: 0.01 }, "5.0 %|1.0 %"),
            (Warning::RepeatedSeeds { repeated: 1, n: 2_000 }, "1 report repeats|2,000"),
            (Warning::SitesDiffer { means: vec!["St. Mary".into()], moments: vec!["A".into(), "B".into()], undecided: vec![], of: 10 }, "3 of the 10 sites are not|St. Mary in its means; A, B in their spread"),
            (Warning::LargeDelta { delta: 0.1, n: 100, whom: "participants" }, "1e-1|100 participants"),
        ];
        let mut codes: Vec<&str> = cases.iter().map(|(warning, _)| warning.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), cases.len());
        for (warning, words) in cases {
            let sentence = warning.to_string();
            let all = words.split('|').all(|word| sentence.contains(word));
            assert!(all && sentence.ends_with('.'), "{words}: {sentence}");
        }
    }
}
