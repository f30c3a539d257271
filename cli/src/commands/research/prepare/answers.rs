//! `eigenveil prepare --from-study`: constants from the answers of a preparation.

use eigenveil_estimation::{
    Cancel,
    format::three_digits,
    preparation::{FEWEST_ANSWERS, PreparationEstimate, PreparedColumn, estimate_answers},
};
use eigenveil_shared::{
    about::{FeatureNotice, StudyNotice},
    api::PreparationAnswers,
    preprocess::Feature,
    wording::percent,
};
use serde::Serialize;

use super::{MAX_COLUMNS_SHOWN, PrepareArgs};
use crate::{
    commands::study_name::find_study,
    error::{CliError, Result},
    files, output,
};

/// The document of `--json`.
#[derive(Serialize)]
struct Written<'a> {
    out: String,
    study: &'a str,
    #[serde(flatten)]
    estimate: &'a PreparationEstimate,
}

pub(super) async fn run(args: &PrepareArgs, called: &str, json: bool) -> Result<()> {
    let client = args.operator.client()?;
    let study = find_study(&client, called).await?;
    let answers = client.answers(&study).await?;
    let about = client.study(&study).await?.about;
    let bar = output::bar(0, "columns");
    let mut progress = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let estimate = estimate_answers(&answers, &mut progress, Cancel::NEVER)?;
    bar.finish_and_clear();
    let mut file = files::NewFile::create(&args.out)?;
    file.write(&features_csv(&estimate, &study, &about)?)?;
    file.persist()?;
    let out = args.out.display().to_string();
    if json {
        let (study, estimate) = (&study[..], &estimate);
        return output::json(&Written {
            out,
            study,
            estimate,
        });
    }
    print(&estimate, &out, (&study, &answers))
}

/// The features file, whose descriptions tell people where center and scale come from.
fn features_csv(
    estimate: &PreparationEstimate,
    study: &str,
    about: &StudyNotice,
) -> Result<Vec<u8>> {
    let observed = estimate
        .features
        .iter()
        .any(|feature| feature.observed.is_some());
    let mut writer = csv::Writer::from_writer(Vec::new());
    let constants = ["name", "center", "scale"];
    let missing: &[&str] = if observed {
        &["observed", "section"]
    } else {
        &[]
    };
    let meaning = ["label", "unit", "description"];
    let heads = constants.iter().chain(missing).chain(&meaning);
    let written = writer.write_record(heads);
    written.map_err(|error| CliError::failed(error.to_string()))?;
    for (feature, notice) in estimate.features.iter().zip(estimate.notices(study, about)) {
        let line = line(feature, observed, notice);
        let written = writer.write_record(line);
        written.map_err(|error| CliError::failed(error.to_string()))?;
    }
    let bytes = writer.into_inner();
    bytes.map_err(|error| CliError::failed(error.to_string()))
}

fn line(feature: &Feature, observed: bool, notice: FeatureNotice) -> Vec<String> {
    let Feature {
        name,
        center,
        scale,
        ..
    } = feature;
    let mut line = vec![name.clone(), center.to_string(), scale.to_string()];
    if observed {
        let share = feature.observed.unwrap_or(1.0);
        line.extend([
            share.to_string(),
            feature.section.clone().unwrap_or_default(),
        ]);
    }
    let meaning = [notice.label, notice.unit, notice.description];
    line.extend(meaning.map(Option::unwrap_or_default));
    line
}

fn print(
    estimate: &PreparationEstimate,
    out: &str,
    (study, answers): (&str, &PreparationAnswers),
) -> Result<()> {
    output::text(&format!(
        "{:<30} {:>8} {:>6} {:>12} {:>10} {:>12} {:>8} {:>8} {:>6}  over",
        "column", "answers", "N", "mean", "±", "deviation", "within", "missing", "reach"
    ))?;
    for column in estimate.columns.iter().take(MAX_COLUMNS_SHOWN) {
        print_column(column)?;
    }
    match estimate.columns.len().saturating_sub(MAX_COLUMNS_SHOWN) {
        0 => {}
        more => output::text(&format!("… and {more} columns more"))?,
    }
    output::text(&format!(
        "\nN: effective answers; ±: two standard errors; within: factor of the clipped column's deviation, to three standard errors; reach: if a share g of all devices make up answers about this column, its shares move by reach·g at most; over: the interval of mean and deviation, beyond which values count as its ends. Each person gave one answer at epsilon {}",
        estimate.epsilon
    ))?;
    let messages = estimate.columns.iter().flat_map(|column| &column.messages);
    for message in messages.chain(&estimate.warnings) {
        output::text(&format!("warning: {message}"))?;
    }
    output::text(&format!("\nwritten: {out}"))?;
    let wide = |column: &PreparedColumn| {
        column
            .messages
            .iter()
            .any(|message| message.contains("a second round"))
    };
    if answers.rounds.len() == 1 && estimate.columns.iter().any(wide) {
        output::text(&format!(
            "a second round, for other people:\n  eigenveil study create --name NAME --second-round-of {study}"
        ))?;
    }
    let few = |column: &PreparedColumn| column.effective_answers < FEWEST_ANSWERS;
    if estimate.columns.iter().any(few) {
        return output::text(
            "no study is worth creating with these constants yet: ask more people, about fewer columns or at a larger epsilon",
        );
    }
    output::text(&format!(
        "for people who have not prepared:\n  eigenveil study create --name NAME --features {} --epsilon {}\nWhoever prepared may take part, too, if their limits allow it: they are charged for both",
        output::shell_quoted(out),
        estimate.epsilon
    ))
}

fn print_column(column: &PreparedColumn) -> Result<()> {
    let digits = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), three_digits);
    let missing = column
        .missing
        .map_or_else(|| "-".to_owned(), |m| percent(m.share));
    output::text(&format!(
        "{:<30} {:>8} {:>6} {:>12} {:>10} {:>12} {:>8} {:>8} {:>6}  {}",
        column.name,
        column.answers,
        column.effective_answers.round(),
        digits(column.mean),
        digits(column.mean_error.map(|error| 2.0 * error)),
        digits(column.deviation),
        column.deviation_factor.map_or_else(
            || "-".to_owned(),
            |factor| format!("×{}", three_digits(factor))
        ),
        missing,
        three_digits(column.reach_of_made_up),
        column.over().unwrap_or_else(|| "-".to_owned())
    ))?;
    for category in &column.categories {
        output::text(&format!(
            "  {:<28} {:>8} {:>6} {:>12} {:>10}",
            category.category,
            "",
            "",
            three_digits(category.share.share),
            digits(category.share.two_errors())
        ))?;
    }
    Ok(())
}
