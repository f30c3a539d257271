//! Whether the sites are alike: means first, then second moments (`docs/derivations/sites.md`, "Comparison").
//!
//! A site is compared with the others that are alike. While one differs, the site without which the others are alike is
//! put aside, or if there is none the one that differs most, and all are compared again, so that a site that is far
//! away does not make the others look far from each other. If the others are alike without any one of several sites,
//! whether these are beyond a limit or not, nobody knows which of them is strange: all of them are put aside. A site
//! whose count is not positive is not compared.

use eigenveil_shared::{
    mechanism::NoiseModel,
    packed::PackedSymmetric,
    preprocess::Norm,
    site_estimate::{SiteDifference, SiteVerdict},
};

use super::{left_out::squared_norm, pool::Pool, sampling::fourth_moment};
use crate::search::bisect;

/// Probability that any site is said to differ where all are alike.
pub(crate) const FALSE_ALARM_RATE: f64 = 1e-3;
/// Ways in which a site may differ: in its means, as a whole and along a feature, and likewise in its moments.
const WAYS: f64 = 4.0;
/// 97.5 % point of the normal law.
const NORMAL_975: f64 = 1.959_963_984_540_054;

/// Verdict on each site, and how it differs from the others; `None` of one that is not compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) verdicts: Vec<Option<SiteVerdict>>,
    /// Whether the verdict is shared: without any one of the sites that share it the others are alike.
    pub(crate) one_of_several: Vec<bool>,
    pub(crate) means: Vec<Option<SiteDifference>>,
    pub(crate) moments: Vec<Option<SiteDifference>>,
}

/// Compares the sites; `None` where fewer than two have rows that show.
pub(crate) fn compare(pool: &Pool<'_>) -> Option<Comparison> {
    let sites = pool.sites.iter();
    let verdicts = sites.map(|site| (site.rows > 0.0).then_some(SiteVerdict::Alike));
    let mut verdicts: Vec<Option<SiteVerdict>> = verdicts.collect();
    let sites = verdicts.len();
    if verdicts.iter().flatten().count() < 2 {
        return None;
    }
    let frame = Frame::new(pool);
    let mut one_of_several = vec![false; sites];
    let ways = [
        (SiteVerdict::OtherMeans, MEANS),
        (SiteVerdict::OtherMoments, MOMENTS),
    ];
    // Without private centring no site differs in its means.
    for (verdict, difference) in ways {
        frame.put_aside(&mut verdicts, &mut one_of_several, verdict, difference);
    }
    // None, or several: the last ones may be put aside together.
    let alike = frame.total(|j| verdicts[j] == Some(SiteVerdict::Alike));
    let of_alike = (alike.draws > 0.0).then_some(alike);
    let all = frame.total(|j| verdicts[j].is_some());
    let difference_of = |j: usize, difference: Difference| {
        let verdict = verdicts[j]?;
        let others = match &of_alike {
            Some(alike) if verdict == SiteVerdict::Alike => frame.without(alike, j),
            Some(alike) => alike.clone(),
            None => frame.without(&all, j),
        };
        difference(&frame, &frame.table(j), &others)
    };
    let means = |j| difference_of(j, MEANS);
    let moments = |j: usize| {
        let comparable = verdicts[j] != Some(SiteVerdict::OtherMeans);
        difference_of(j, MOMENTS).filter(|_| comparable)
    };
    Some(Comparison {
        means: (0..sites).map(means).collect(),
        moments: (0..sites).map(moments).collect(),
        verdicts,
        one_of_several,
    })
}

/// A comparison of one table with others; `None` of means without private centring, and where there are no others.
type Difference = fn(&Frame<'_>, &Table, &Table) -> Option<SiteDifference>;

const MEANS: Difference = |of, table, others| of.means(table, others);
const MOMENTS: Difference = |of, table, others| of.moments(table, others);

/// Tables together.
#[derive(Clone, Debug)]
struct Table {
    /// ΣR.
    sum: PackedSymmetric,
    /// Σm̂.
    rows: f64,
    draws: f64,
}

/// The tables of a study, and limits on the differences that noise and sampling explain.
struct Frame<'a> {
    pool: &'a Pool<'a>,
    /// p.
    features: usize,
    centring: Option<f64>,
    norm: Norm,
    /// 1 + a², or 1.
    lift: f64,
    /// Variance of an entry off the diagonal and on it, and of a count, of one report.
    off_diagonal: f64,
    diagonal: f64,
    count: f64,
    /// ln of one over the probability that one site is said to differ in one way.
    exponent: f64,
    /// Point of the normal law for one feature of one site.
    point: f64,
}

/// Mean and covariance of tables, as far as the limits take them.
struct Rows {
    mean: Vec<f64>,
    covariance: PackedSymmetric,
    trace: f64,
    squared_norm: f64,
}

impl<'a> Frame<'a> {
    fn new(pool: &'a Pool<'a>) -> Self {
        let preprocessing = pool.params.preprocessing();
        let centring = preprocessing.centring;
        let features = preprocessing.dimension;
        let (off_diagonal_sd, diagonal_sd) = match pool.noise() {
            NoiseModel::Gaussian {
                off_diagonal_sd,
                diagonal_sd,
            } => (off_diagonal_sd, diagonal_sd),
            // Reports of tables have no other.
            other => (other.off_diagonal_sd(), other.off_diagonal_sd()),
        };
        let each = FALSE_ALARM_RATE / (WAYS * pool.sites.len() as f64);
        Self {
            pool,
            features,
            centring,
            norm: preprocessing.norm,
            lift: centring.map_or(1.0, |a| 1.0 + a * a),
            off_diagonal: off_diagonal_sd * off_diagonal_sd,
            diagonal: diagonal_sd * diagonal_sd,
            count: pool.params.mechanism().count_sd().powi(2),
            exponent: -each.ln(),
            point: normal_point(0.5 * each / features as f64),
        }
    }

    fn table(&self, j: usize) -> Table {
        let site = &self.pool.sites[j];
        Table {
            sum: site.sum(),
            rows: site.rows,
            draws: site.draws(),
        }
    }

    /// The tables of some sites together.
    fn total(&self, is_in: impl Fn(usize) -> bool) -> Table {
        let mut total = Table {
            sum: PackedSymmetric::zeros(self.pool.params.report_dimension()),
            rows: 0.0,
            draws: 0.0,
        };
        for (_, site) in self
            .pool
            .sites
            .iter()
            .enumerate()
            .filter(|(j, _)| is_in(*j))
        {
            site.add_to(&mut total.sum, 1.0);
            total.rows += site.rows;
            total.draws += site.draws();
        }
        total
    }

    /// The tables of `total` without those of site j, which is among them.
    fn without(&self, total: &Table, j: usize) -> Table {
        let site = &self.pool.sites[j];
        let mut others = total.clone();
        site.add_to(&mut others.sum, -1.0);
        others.rows -= site.rows;
        others.draws -= site.draws();
        others
    }

    /// Gives sites that differ this verdict, until those that are left are alike.
    fn put_aside(
        &self,
        verdicts: &mut [Option<SiteVerdict>],
        one_of_several: &mut [bool],
        verdict: SiteVerdict,
        difference: Difference,
    ) {
        loop {
            let is_alike = |j: usize| verdicts[j] == Some(SiteVerdict::Alike);
            let total = self.total(is_alike);
            let excess = |total: &Table, j: usize| {
                let site_difference = difference(self, &self.table(j), &self.without(total, j));
                site_difference.map_or(0.0, |found| found.excess)
            };
            let alike = (0..verdicts.len()).filter(|j| is_alike(*j));
            let mut excesses: Vec<(usize, f64)> = alike.map(|j| (j, excess(&total, j))).collect();
            // The largest first: of sites that differ without another one, too, it is likely to be one.
            excesses.sort_by(|a, b| b.1.total_cmp(&a.1));
            let Some(&(worst, most)) = excesses.first() else {
                return;
            };
            if most <= 1.0 {
                return;
            }
            let explains = |j: &usize| {
                let rest = self.without(&total, *j);
                let mut others = excesses.iter().filter(|(i, _)| i != j);
                others.all(|(i, _)| excess(&rest, *i) <= 1.0)
            };
            // Every site is tried, within the limits or not: the only one that differs is then among these. A try that
            // fails mostly ends at the site that is furthest away.
            let mut aside: Vec<usize> = excesses.iter().map(|(j, _)| *j).filter(explains).collect();
            if aside.is_empty() {
                aside.push(worst);
            }
            for &j in &aside {
                verdicts[j] = Some(verdict);
                one_of_several[j] = aside.len() > 1;
            }
        }
    }

    /// m of these tables: `(f/a)·D₁₂`, or 0.
    fn mean(&self, table: &Table) -> Vec<f64> {
        let p = self.features;
        let scale = self.centring.map(|a| self.lift / a / table.rows);
        let entry = |i| scale.map_or(0.0, |scale| scale * table.sum.get(i, p));
        (0..p).map(entry).collect()
    }

    /// `f·D₁₁ − mmᵀ` of these tables.
    fn rows(&self, table: &Table) -> Rows {
        let mean = self.mean(table);
        let mut covariance = self.features_of(&table.sum, self.lift / table.rows);
        covariance.add_outer(&mean, -1.0);
        let trace = covariance.trace().max(0.0);
        Rows {
            squared_norm: squared_norm(&covariance),
            mean,
            covariance,
            trace,
        }
    }

    /// The part of a sum that belongs to features, times `factor`.
    fn features_of(&self, sum: &PackedSymmetric, factor: f64) -> PackedSymmetric {
        let p = self.features;
        let mut part = PackedSymmetric::zeros(p);
        let mut rest = sum.as_slice();
        let mut entries = part.as_mut_slice().iter_mut();
        for i in 0..p {
            let (line, tail) = rest.split_at(sum.dimension() - i);
            for (entry, value) in entries.by_ref().take(p - i).zip(line) {
                *entry = factor * value;
            }
            rest = tail;
        }
        part
    }

    /// The difference of the means.
    fn means(&self, own: &Table, others: &Table) -> Option<SiteDifference> {
        let a = self.centring?;
        let [noise, sampling] = weights(own, others)?;
        let Rows {
            mean,
            covariance,
            trace,
            squared_norm,
        } = self.rows(&self.together(own, others));
        let of_others = self.mean(others);
        let of_site = self.mean(own);
        let difference: Vec<f64> = of_site.iter().zip(&of_others).map(|(x, y)| x - y).collect();
        let squared_mean: f64 = mean.iter().map(|m| m * m).sum();
        let entry = (self.lift / a).powi(2) * self.off_diagonal * noise;
        let counted = self.count * noise;
        let p = self.features as f64;
        let largest = squared_norm.sqrt().min(trace);
        let spread = Spread {
            total: p * entry + sampling * trace + counted * squared_mean,
            most: entry + sampling * largest + counted * squared_mean,
        };
        let squares = p * entry * entry
            + 2.0 * entry * sampling * trace
            + sampling * sampling * squared_norm
            + 2.0 * counted * squared_mean * spread.most;
        let length: f64 = difference.iter().map(|x| x * x).sum();
        let along: f64 = mean.iter().zip(&difference).map(|(m, x)| m * x).sum();
        let form = quadratic_form(&covariance, &difference).max(0.0);
        let variance =
            2.0 * squares + 4.0 * (entry * length + sampling * form + counted * along * along);
        let features = difference.iter().enumerate().map(|(i, x)| {
            let feature_variance = covariance.get(i, i).max(0.0);
            (
                *x,
                entry + sampling * feature_variance + counted * mean[i] * mean[i],
            )
        });
        Some(self.judged(length, &spread, variance, features))
    }

    /// The difference of the second moments around the mean of the others.
    fn moments(&self, own: &Table, others: &Table) -> Option<SiteDifference> {
        let [noise, sampling] = weights(own, others)?;
        let p = self.features as f64;
        let together = self.rows(&self.together(own, others));
        let around = self.rows(others);
        let mean = &around.mean;
        let squared_mean: f64 = mean.iter().map(|m| m * m).sum();
        let shift: Vec<f64> = self
            .mean(own)
            .iter()
            .zip(mean)
            .map(|(x, y)| x - y)
            .collect();
        let mut difference = self.features_of(&own.sum, self.lift / own.rows);
        let of_others = self.features_of(&others.sum, self.lift / others.rows);
        for (entry, other) in difference
            .as_mut_slice()
            .iter_mut()
            .zip(of_others.as_slice())
        {
            *entry -= other;
        }
        subtract_products(&mut difference, mean, &shift);
        // What a count that is off by one adds.
        let mut counted = around.covariance.clone();
        counted.add_outer(mean, -1.0);
        let of_count = self.count * squared_norm(&counted);
        // s²/a², that of the column of the constant.
        let column = self.centring.map_or(0.0, |a| self.off_diagonal / (a * a));
        let lift = self.lift * self.lift;
        let entries = p * self.diagonal + p * (p - 1.0) * self.off_diagonal;
        let total_noise = lift * (entries + 2.0 * squared_mean * (p + 1.0) * column) + of_count;
        let largest = self.diagonal.max(2.0 * self.off_diagonal);
        let most_noise = lift * (largest + 4.0 * squared_mean * column) + of_count;
        let along = quadratic_form(&together.covariance, mean).max(0.0);
        let fourth = fourth_moment(together.trace, (squared_mean, along), self.norm);
        let longest = (1.0 + squared_mean.sqrt()).powi(2);
        let largest = together.squared_norm.sqrt().min(together.trace);
        let spread = Spread {
            total: noise * total_noise + sampling * fourth * together.trace.powi(2),
            most: noise * most_noise + sampling * longest * largest,
        };
        let length = squared_norm(&difference);
        let variance = spread.most * (2.0 * spread.total + 4.0 * length);
        let features = (0..self.features).map(|i| {
            let most = (1.0 + mean[i].abs()).powi(2);
            let feature_variance = together.covariance.get(i, i).clamp(0.0, most);
            let of_noise = lift * (self.diagonal + 4.0 * mean[i] * mean[i] * column)
                + self.count * counted.get(i, i).powi(2);
            let sampled = feature_variance * (most - feature_variance);
            (difference.get(i, i), noise * of_noise + sampling * sampled)
        });
        Some(self.judged(length, &spread, variance, features))
    }

    fn together(&self, own: &Table, others: &Table) -> Table {
        let mut together = others.clone();
        together.sum.add(&own.sum);
        together.rows += own.rows;
        together.draws += own.draws;
        together
    }

    /// A difference of this squared length, whose estimate has this variance, with the difference and its variance along
    /// each feature.
    fn judged(
        &self,
        length: f64,
        spread: &Spread,
        variance: f64,
        features: impl Iterator<Item = (f64, f64)>,
    ) -> SiteDifference {
        let limit = spread.total.sqrt() + (2.0 * self.exponent * spread.most).sqrt();
        let in_errors = |(_, (x, variance)): &(usize, (f64, f64))| x.abs() / variance.sqrt();
        let largest = features
            .enumerate()
            .max_by(|one, other| in_errors(one).total_cmp(&in_errors(other)));
        let (feature, (along_feature, its)) = largest.unwrap_or((0, (0.0, 1.0)));
        let along_feature_se = its.sqrt();
        let size = length - spread.total;
        let half = NORMAL_975 * variance.sqrt();
        let root = |squared: f64| squared.max(0.0).sqrt();
        SiteDifference {
            size: root(size),
            interval: (root(size - half), root(size + half)),
            excess: (length.sqrt() / limit)
                .max(along_feature.abs() / (self.point * along_feature_se)),
            feature,
            along_feature,
            along_feature_se,
        }
    }
}

/// The expected squared length of an explained difference, and its largest variance along one direction.
struct Spread {
    total: f64,
    most: f64,
}

/// Factors of the noise of one report and of the sampling of one row in a difference of means; `None` where a count is
/// not positive, or there are no others.
fn weights(own: &Table, others: &Table) -> Option<[f64; 2]> {
    (own.rows > 0.0 && others.rows > 0.0 && others.draws > 0.0).then(|| {
        let noise = |of: &Table| of.draws / (of.rows * of.rows);
        let sampling = |of: &Table| 1.0 / of.rows;
        [noise(own) + noise(others), sampling(own) + sampling(others)]
    })
}

/// xᵀMx.
fn quadratic_form(matrix: &PackedSymmetric, x: &[f64]) -> f64 {
    let mut rest = matrix.as_slice();
    let mut form = 0.0;
    for (i, own) in x.iter().enumerate() {
        let (line, tail) = rest.split_at(x.len() - i);
        let others: f64 = line.iter().zip(&x[i..]).skip(1).map(|(m, y)| m * y).sum();
        form += own * (line[0] * own + 2.0 * others);
        rest = tail;
    }
    form
}

/// Subtracts `xyᵀ + yxᵀ`.
fn subtract_products(matrix: &mut PackedSymmetric, x: &[f64], y: &[f64]) {
    let p = matrix.dimension();
    let mut entries = matrix.as_mut_slice().iter_mut();
    for i in 0..p {
        for j in i..p {
            if let Some(entry) = entries.next() {
                *entry -= x[i] * y[j] + x[j] * y[i];
            }
        }
    }
}

/// The z that a standard normal number exceeds with this probability.
fn normal_point(probability: f64) -> f64 {
    let exceeds = |z: f64| 0.5 * libm::erfc(z / std::f64::consts::SQRT_2) > probability;
    bisect(0.0, 40.0, 80, exceeds).1
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::site_study::SiteWeights;

    use super::{super::pool::tests::study, *};
    use crate::input::site_report::SiteSum;

    /// A table of this many rows around `mean` (without noise) whose features vary by `variances`; with the constant a.
    fn table(j: usize, rows: f64, a: f64, mean: [f64; 3], variances: [f64; 3]) -> SiteSum {
        let lift = 1.0 + a * a;
        let mut sum = PackedSymmetric::zeros(4);
        let centre = [mean[0], mean[1], mean[2], a];
        sum.add_outer(&centre, rows / lift);
        for (i, variance) in variances.into_iter().enumerate() {
            let mut axis = [0.0; 4];
            axis[i] = 1.0;
            sum.add_outer(&axis, rows * variance / lift);
        }
        SiteSum {
            site: format!("site {j}"),
            rows_noisy: rows,
            sum,
        }
    }

    fn compared(own: &[([f64; 3], [f64; 3])]) -> Comparison {
        let tables = own.iter().enumerate();
        let reports = tables.map(|(j, (mean, own))| table(j, 1e4, 0.5, *mean, *own));
        compared_reports(&reports.collect::<Vec<_>>())
    }

    fn compared_reports(reports: &[SiteSum]) -> Comparison {
        let params = study(3, Some(0.5), SiteWeights::Rows);
        compare(&Pool::new(reports, &params).unwrap()).unwrap()
    }

    const USUAL: ([f64; 3], [f64; 3]) = ([0.1, 0.0, 0.2], [0.3, 0.2, 0.1]);

    #[test]
    fn one_site_that_differs_is_named_and_no_other_with_what_it_differs_in() {
        use SiteVerdict::{Alike, OtherMeans, OtherMoments};
        let alike = compared(&[USUAL; 4]);
        assert_eq!(alike.verdicts, [Some(Alike); 4]);
        for found in alike.means.iter().chain(&alike.moments).flatten() {
            assert!(found.excess < 1e-9 && found.size == 0.0, "{found:?}");
            assert!(found.along_feature_se > 0.0 && found.interval.0 == 0.0);
        }
        let mut shifted = [USUAL; 4];
        shifted[2].0[1] = 0.3;
        let comparison = compared(&shifted);
        let named = [Alike, Alike, OtherMeans, Alike].map(Some);
        assert_eq!(comparison.verdicts, named);
        assert_eq!(comparison.one_of_several, [false; 4]);
        let means = comparison.means[2].unwrap();
        assert!(
            means.feature == 1 && (means.along_feature - 0.3).abs() < 1e-12,
            "{means:?}"
        );
        assert!(
            (means.size - 0.3).abs() < 0.001 && means.interval.0 < means.size,
            "{means:?}"
        );
        assert!(comparison.moments[2].is_none() && comparison.moments[0].unwrap().excess < 1e-9);
        let mut wider = [USUAL; 4];
        wider[0].1[2] = 0.2;
        let comparison = compared(&wider);
        let named = [OtherMoments, Alike, Alike, Alike].map(Some);
        assert_eq!(comparison.verdicts, named);
        let moments = comparison.moments[0].unwrap();
        assert!(moments.feature == 2 && (moments.along_feature - 0.1).abs() < 1e-12);
        // Two that differ from two: nobody says which are right, but all that is found is found of two at least.
        let both = compared(&[USUAL, shifted[2]]);
        assert_eq!(both.verdicts, [Some(OtherMeans); 2]);
        assert_eq!(both.one_of_several, [true; 2]);
        let size = |j: usize| both.means[j].unwrap().size;
        assert!((size(0) - size(1)).abs() < 1e-12 && size(0) > 0.29);
    }

    /// A liar with most rows makes an innocent site look the strangest: if the small ones cannot tell, both are named,
    /// the liar also where it is within its own limit, and if they can, the liar alone. Excesses by a numpy program, of
    /// the innocent, of the liar, and the most without the innocent: 4.2, 3.7, 0.8; 3.2, 5.8, 4.6; 1.6, 0.7, 0.3.
    #[test]
    fn a_large_site_that_differs_does_not_get_another_one_named_alone() {
        use SiteVerdict::{Alike, OtherMeans};
        for (own, others, rows, innocent) in [
            (5_000.0, 8, 100.0, OtherMeans),
            (5_000.0, 8, 1_000.0, Alike),
            (1_000.0, 30, 20.0, OtherMeans),
        ] {
            let (mean, variances) = USUAL;
            let mut reports = vec![
                table(0, own, 0.5, mean, variances),
                table(1, 20_000.0, 0.5, [0.1, 0.15, 0.2], variances),
            ];
            reports.extend((2..2 + others).map(|j| table(j, rows, 0.5, mean, variances)));
            let comparison = compared_reports(&reports);
            let mut named = vec![Some(Alike); reports.len()];
            (named[0], named[1]) = (Some(innocent), Some(OtherMeans));
            assert_eq!(comparison.verdicts, named);
            let shared = innocent == OtherMeans;
            assert_eq!(comparison.one_of_several[..3], [shared, shared, false]);
        }
    }

    /// One that says it has no rows is not alike, whatever it sends, and is not among the others of the rest.
    #[test]
    fn a_site_without_rows_is_not_compared() {
        let (mean, variances) = USUAL;
        for rows in [0.0, -5.0] {
            let mut reports: Vec<SiteSum> = (0..4)
                .map(|j| table(j, 1e4, 0.5, mean, variances))
                .collect();
            let alike = compared_reports(&reports);
            let mut without_rows = table(4, rows, 0.5, mean, variances);
            without_rows.sum.add_outer(&[0.0, 1.0, 0.0, 0.0], 122.0);
            reports.push(without_rows);
            let comparison = compared_reports(&reports);
            assert_eq!(comparison.verdicts[..4], alike.verdicts);
            assert_eq!(comparison.verdicts[4], None);
            let [means, moments] = [&comparison.means, &comparison.moments].map(|of| of[4]);
            assert!(means.is_none() && moments.is_none());
            assert_eq!(
                comparison.means[0].map(|of| of.size),
                alike.means[0].map(|of| of.size)
            );
            // Nor is the only one that has rows.
            let params = study(3, Some(0.5), SiteWeights::Rows);
            assert!(compare(&Pool::new(&reports[3..], &params).unwrap()).is_none());
        }
    }

    /// Numbers by scipy: `norm.isf`.
    #[test]
    fn parts_are_right() {
        for (probability, exact) in [(0.025, 1.959_964), (1e-6, 4.753_424), (1.6e-7, 5.111_270)] {
            let point = normal_point(probability);
            assert!((point - exact).abs() < 1e-5, "{point}");
        }
        let matrix = PackedSymmetric::from_entries(2, vec![1.0, 2.0, 3.0]).unwrap();
        assert_eq!(quadratic_form(&matrix, &[2.0, -1.0]), 4.0 - 8.0 + 3.0);
        let mut matrix = matrix;
        subtract_products(&mut matrix, &[1.0, 0.0], &[2.0, 5.0]);
        assert_eq!(matrix.as_slice(), [-3.0, -3.0, 3.0]);
    }
}
