//! Components that cannot be distinguished.
//!
//! Noise of variance V between two directions rotates components with an eigengap into each other by about `√V/gap`; if
//! that is large, each single direction is arbitrary, but their span is not. Two neighbours above the floor are linked
//! if equal eigenvalues could show their gap ([`EQUAL_EIGENVALUES_GAP`]), either by the mechanism's noise alone or
//! within their error bars, which include the choice of participants; or if the direction of one is undetermined (an
//! error bar of more than 45°) and it mixes with the other.

use eigenveil_shared::estimate::{Component, ComponentGroup, Verdict};

use super::{EigenvalueVerdict, Floor, Measured, closed_form::EQUAL_EIGENVALUES_GAP};
use crate::{
    assessment::error_bars::{DirectionErrors, ErrorBars},
    dense::pca::share_of,
    report::warning::Warning,
    search::bisect,
};

/// Mean squared sine beyond which a direction, or a space, is undetermined: 45°.
const MAX_SQUARED_SINE: f64 = 0.5;
/// Less than this is no excess of alignments.
const ROUND_OFF: f64 = 1e-12;

/// Largest factor by which losses are raised: then all alignments are chance.
const MOST_FACTOR: f64 = 1e9;

/// Groups components judged against `floor`, gives each the verdict and the alignment of its group, lowers one whose
/// direction is undetermined, and bounds alignments by error bars; with the numbers of those that it lowers. `lost`:
/// mean squared sine of each component that choosing features adds to its error bar; `total`: the variance that shares
/// refer to.
pub(super) fn group(
    floor: &Floor,
    verdicts: &[EigenvalueVerdict],
    measured: &Measured<'_>,
    components: &mut [Component],
    lost: &[f64],
    total: Option<f64>,
) -> (Vec<ComponentGroup>, Vec<usize>) {
    let bars = measured.error_bars;
    let runs = runs(floor, verdicts, measured.values, bars);
    let groups = documents(&runs, components, bars, lost, total);
    let lowered = demote_undetermined(components, &groups);
    for component in components.iter_mut() {
        let expected = component.alignment;
        component.alignment =
            expected.and_then(|expected| within(expected, component.direction_se));
        let is_floors = component.alignment == expected;
        component.alignment_se = component.alignment_se.filter(|_| is_floors);
    }
    for group in &groups {
        for component in &mut components[group.first - 1..group.last] {
            component.verdict = group.verdict;
            (component.alignment, component.alignment_se) = (group.alignment, None);
        }
    }
    (groups, lowered)
}

/// The warnings about groups, and about `lowered` components, by number, of k of which `visible` stand above the floor.
pub(super) fn warnings(
    groups: &[ComponentGroup],
    lowered: Vec<usize>,
    k: usize,
    visible: usize,
) -> Vec<Warning> {
    let each = groups.iter().cloned().map(|group| match group.verdict {
        Verdict::Above => Warning::Inseparable(group),
        _ => Warning::Unstable(group),
    });
    let mut warnings: Vec<Warning> = each.collect();
    match lowered.as_slice() {
        [] => {}
        [number] if *number == k && visible > k => {
            warnings.push(Warning::ChangesPlaces { k, visible });
        }
        _ => warnings.push(Warning::NoDirection(lowered)),
    }
    warnings
}

/// Raises what components lose, 1 − alignment, by one factor until the alignments add up to k − E²/2 at most, as
/// `tr V̂V̂ᵀVVᵀ` does, E the expected error of their space; none falls below chance, m/p of a space of m of p dimensions.
/// Then leaves out the standard errors that are larger than numbers between 0 and 1 can have around an alignment.
pub(super) fn obey_error(components: &mut [Component], groups: &mut [ComponentGroup], error: f64) {
    let size = |number: usize| {
        let mut groups = groups.iter();
        let group = groups.find(|group| (group.first..=group.last).contains(&number));
        group.map_or(1, |group| group.last + 1 - group.first)
    };
    let numbered = (1..).zip(components.iter());
    let chances: Vec<f64> = numbered
        .map(|(number, component)| size(number) as f64 / component.loadings.len() as f64)
        .collect();
    let most = components.len() as f64 - 0.5 * error * error + ROUND_OFF;
    let lowered = |alignment: f64, chance: f64, factor: f64| match factor {
        1.0 => alignment.max(chance),
        _ => (1.0 - factor * (1.0 - alignment)).max(chance),
    };
    let exceeds = |factor: f64| {
        let known = components.iter().zip(&chances);
        let known = known.filter_map(|(component, chance)| Some((component.alignment?, *chance)));
        let sum: f64 = known
            .map(|(alignment, chance)| lowered(alignment, chance, factor))
            .sum();
        sum > most
    };
    let factor = match exceeds(1.0) {
        true => bisect(1.0, MOST_FACTOR, 100, exceeds).1,
        false => 1.0,
    };
    for (component, &chance) in components.iter_mut().zip(&chances) {
        let Some(alignment) = component.alignment else {
            continue;
        };
        let alignment = lowered(alignment, chance, factor);
        let possible = |error: &f64| error * error <= alignment * (1.0 - alignment);
        component.alignment = Some(alignment);
        component.alignment_se = component.alignment_se.map(|error| factor * error);
        component.alignment_se = component.alignment_se.filter(possible);
    }
    for group in groups {
        group.alignment = components[group.first - 1].alignment;
    }
}

/// Runs `first..=last` (from 0) of two or more components above the floor that cannot be distinguished, leading first.
fn runs(
    floor: &Floor,
    verdicts: &[EigenvalueVerdict],
    values: &[f64],
    bars: Option<&ErrorBars>,
) -> Vec<(usize, usize)> {
    let k = verdicts.len();
    let standing = |j: usize| verdicts.get(j).is_some_and(EigenvalueVerdict::is_above);
    // Whether j and j + 1 are linked.
    let mut linked: Vec<bool> = (0..k)
        .map(|j| {
            let near = || {
                could_be_equal(floor, verdicts, j)
                    || could_be_equal_within_error_bars(values, bars, j)
            };
            standing(j) && standing(j + 1) && near()
        })
        .collect();
    if let Some(directions) = bars.and_then(|bars| bars.directions.as_ref()) {
        // Every round links two runs, so there are fewer than k.
        while let Some(link) = next_link(&linked, directions, &standing) {
            linked[link] = true;
        }
    }
    split(&linked)
        .into_iter()
        .filter(|(first, last)| last > first)
        .collect()
}

/// Whether components j and j + 1 could be equal, and apart by noise alone.
fn could_be_equal(floor: &Floor, verdicts: &[EigenvalueVerdict], j: usize) -> bool {
    let theta = |j: usize| Some(verdicts.get(j)?.spike?.theta);
    let Some((first, second)) = theta(j).zip(theta(j + 1)) else {
        return false;
    };
    let sd = floor.noise.variance_between(first, second).sqrt();
    (first - second).abs() < 2.0 * EQUAL_EIGENVALUES_GAP * sd
}

/// Whether eigenvalues j and j + 1 could be equal within their error bars. The variance of an eigenvalue is 2V, so V is
/// a quarter of the sum of two.
fn could_be_equal_within_error_bars(values: &[f64], bars: Option<&ErrorBars>, j: usize) -> bool {
    let bar = |j: usize| Some((*values.get(j)?, *bars?.eigenvalues.get(j)?));
    bar(j)
        .zip(bar(j + 1))
        .is_some_and(|((one, its), (other, others))| {
            (one - other).abs() < EQUAL_EIGENVALUES_GAP * its.hypot(others)
        })
}

/// Runs of linked components, single ones among them.
fn split(linked: &[bool]) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    let mut first = 0;
    for (j, linked) in linked.iter().enumerate() {
        if !linked {
            runs.push((first, j));
            first = j + 1;
        }
    }
    runs
}

/// The link from an undetermined run to the neighbouring run that it mixes with most.
fn next_link(
    linked: &[bool],
    directions: &DirectionErrors,
    standing: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    let runs = split(linked);
    let error = |(first, last): (usize, usize)| directions.squared_sine_of_span(first, last);
    let mixing = |one: (usize, usize), other: (usize, usize)| directions.mixing(one, other);
    let link = |(place, run): (usize, &(usize, usize))| {
        if !standing(run.0) || error(*run) <= MAX_SQUARED_SINE {
            return None;
        }
        let before = place.checked_sub(1).and_then(|before| runs.get(before));
        let after = runs.get(place + 1);
        let other = [before, after]
            .into_iter()
            .flatten()
            .filter(|other| standing(other.0))
            .max_by(|a, b| mixing(*run, **a).total_cmp(&mixing(*run, **b)))?;
        // At least half of the error must point towards it, because any pair has a smaller average error than its worse
        // member.
        let most = mixing(*run, *other) > 0.5 * directions.squared_sines(run.0, run.1);
        most.then_some(run.1.min(other.1))
    };
    runs.iter().enumerate().find_map(link)
}

/// The smaller of an expected squared cosine and what an error bar, a root mean squared sine, leaves of 1; `None` where it
/// leaves the direction undetermined: it is of first order, and says nothing then.
fn within(expected: f64, sine: Option<f64>) -> Option<f64> {
    let lost = sine.map_or(0.0, |sine| sine * sine);
    (lost <= MAX_SQUARED_SINE).then(|| expected.min(1.0 - lost))
}

fn documents(
    runs: &[(usize, usize)],
    components: &[Component],
    bars: Option<&ErrorBars>,
    lost: &[f64],
    total: Option<f64>,
) -> Vec<ComponentGroup> {
    let directions = bars.and_then(|bars| bars.directions.as_ref());
    let group = |&(first, last): &(usize, usize)| {
        let members = &components[first..=last];
        let lost = lost[first..=last].iter().sum::<f64>() / members.len() as f64;
        let squared = directions.map(|errors| errors.squared_sine_of_span(first, last) + lost);
        let variance = members.iter().map(|member| member.variance).sum();
        let expected: Option<f64> = members.iter().map(|member| member.alignment).sum();
        let span_se = squared.map(|squared| squared.sqrt().min(1.0));
        ComponentGroup {
            first: first + 1,
            last: last + 1,
            verdict: match squared {
                Some(squared) if squared > MAX_SQUARED_SINE => Verdict::At,
                _ => Verdict::Above,
            },
            variance,
            explained_variance_ratio: total.map(|total| share_of(variance, total)),
            alignment: expected.and_then(|sum| within(sum / members.len() as f64, span_se)),
            subspace_se: span_se,
        }
    };
    runs.iter().map(group).collect()
}

/// Demotes a component above the floor to "at the floor" if its direction is undetermined, unless its group is
/// determined: there is a component, but its direction is unknown. Returns the numbers of the demoted components, from
/// 1.
fn demote_undetermined(components: &mut [Component], groups: &[ComponentGroup]) -> Vec<usize> {
    let mut lowered = Vec::new();
    for (j, component) in components.iter_mut().enumerate() {
        let number = j + 1;
        let in_group = groups.iter().any(|group| {
            group.verdict == Verdict::Above && (group.first..=group.last).contains(&number)
        });
        let open = component
            .direction_se
            .is_some_and(|sine| sine * sine > MAX_SQUARED_SINE);
        if component.verdict == Verdict::Above && open && !in_group {
            component.verdict = Verdict::At;
            lowered.push(number);
        }
    }
    lowered
}
