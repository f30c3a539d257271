//! `eigenveil study`: the operator's study management.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use eigenveil_client::{StudyTerms, http::OperatorClient};
use eigenveil_estimation::{
    planning::slow_report_note, preparation::second_round_of, statistics::MomentEstimate,
};
use eigenveil_shared::{
    about::{FeatureNotice, StudyNotice, UtcDate},
    api::{CreateStudyRequest, NewSiteToken, PreparationRequest, StudyDocument, StudySummary},
    enrolment::{Enrolment, MAX_TOKENS_PER_REQUEST, ParticipantToken},
    estimate::ComponentCount,
    parameters::Parameters,
    preprocess::{MEAN_WEIGHT_RANGE, Weights},
    site_study::{SiteTerms, SiteWeights},
    wording::{counted, plural},
};
use eigenveil_tables::questions;

use crate::commands::{print_written, study_name::find_study};
use crate::{
    args::{MechanismArgs, OperatorArgs, parse, rank},
    error::{CliError, Result},
    files, output, tables,
};

/// Create, list, show, open, close, export, import and delete studies; make participants' tokens
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  export EIGENVEIL_TOKEN=$(cat data/operator.token)\n  eigenveil study create --name digits --p 64 --k 5 --epsilon 4"
)]
pub(crate) struct StudyArgs {
    #[command(flatten)]
    operator: OperatorArgs,
    #[command(subcommand)]
    command: StudyCommand,
}

#[derive(Debug, Subcommand)]
enum StudyCommand {
    /// Create a study and open it
    #[command(
        after_help = "Examples:\n  eigenveil study create --name heights --p 2 --k 1 --epsilon 4 --features features.csv --bound-rows clip --radius 3 \\\n    --purpose \"How height and weight vary together\" --responsible-party \"University of Example\" \\\n    --contact study@example.org --last-day 2027-03-31\n  eigenveil study create --name heights-prepared --columns columns.csv --epsilon 1\n\nfeatures.csv has the columns name,center,scale: public constants, one line per feature.\nTake them from published data about the population, never from the participants' rows.\nIts columns label,unit,description, if it has them, tell participants what each feature means."
    )]
    Create(Box<CreateArgs>),
    /// List studies
    #[command(after_help = "Example:\n  eigenveil study list --json")]
    List,
    /// Show one study
    #[command(after_help = "Example:\n  eigenveil study show 0193c0ffee0193c0ffee0193c0ffee01")]
    Show(StudyId),
    /// Open a draft: it accepts reports from now on
    #[command(after_help = "Example:\n  eigenveil study open 0193c0ffee0193c0ffee0193c0ffee01")]
    Open(StudyId),
    /// Close a study: it accepts no more reports
    #[command(after_help = "Example:\n  eigenveil study close 0193c0ffee0193c0ffee0193c0ffee01")]
    Close(StudyId),
    /// Make one-time participant tokens for a study created with --enrolment token
    #[command(
        after_help = "Examples:\n  eigenveil study tokens 0193c0ffee0193c0ffee0193c0ffee01 --count 500 --out tokens.txt\n  eigenveil study tokens 0193c0ffee0193c0ffee0193c0ffee01 --site \"St. Mary\" --max-rows 20000 --out st-mary.txt\n\nThe file has one token per line and is readable by its owner only; the server stores hashes.\nEach token is valid for one report. Without --count and --site the command shows how many were made and spent, and for\nwhich sites."
    )]
    Tokens {
        #[command(flatten)]
        study: StudyId,
        #[command(flatten)]
        wanted: TokenArgs,
    },
    /// Write a study to a file: parameters, identifiers, sums or seeds; not its estimates
    #[command(
        after_help = "Example:\n  eigenveil study export 0193c0ffee0193c0ffee0193c0ffee01 --out study.evstudy"
    )]
    Export {
        #[command(flatten)]
        study: StudyId,
        /// File to write; an existing one is refused
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Add the reports of an export to a study; the same export is added once
    #[command(
        after_help = "Example:\n  eigenveil study import study.evstudy\n  eigenveil study import study.evstudy --into 0193c0ffee0193c0ffee0193c0ffee01\n\nWithout --into the study keeps its identifier and is created if it does not exist. With --into both studies must\nhave the same fingerprint, and no report may be in both."
    )]
    Import {
        /// The file
        file: PathBuf,
        /// Study to add the reports to: its identifier, the beginning of it, or its name
        #[arg(long, value_name = "ID")]
        into: Option<String>,
    },
    /// Delete a study that is not open, with its reports and estimates, for good
    #[command(
        after_help = "Example:\n  eigenveil study delete 0193c0ffee0193c0ffee0193c0ffee01 --yes"
    )]
    Delete {
        #[command(flatten)]
        study: StudyId,
        /// Confirm the deletion, which cannot be undone
        #[arg(long, required = true)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct StudyId {
    /// Identifier of the study, the beginning of it, or the study's name
    id: String,
}

impl StudyId {
    async fn find(&self, client: &OperatorClient) -> Result<String> {
        find_study(client, &self.id).await
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("made").args(["count", "site"]))]
struct TokenArgs {
    /// How many tokens to make
    #[arg(long, value_name = "N", requires = "out", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// In a study of sites: make a token for the site of this name, which is stored with its report
    #[arg(long, value_name = "NAME", requires = "out")]
    site: Option<String>,
    /// Most rows (persons, where persons are protected) of that site's table [default: as many as the study allows]
    #[arg(long, value_name = "M", requires = "site")]
    max_rows: Option<u64>,
    /// File to write; an existing one is refused
    #[arg(long, value_name = "FILE", requires = "made")]
    out: Option<PathBuf>,
}

/// A study of sites.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sites: each report is a whole table")]
struct SiteArgs {
    /// Each report is of a site's table of at most so many rows (persons, with --rows-per-person), and each site gets a
    /// token (see study tokens --site); the mechanism is then discrete-gaussian, and private centring is on (--centring=0:
    /// off), unless you say otherwise
    #[arg(long, value_name = "M")]
    max_rows: Option<u64>,
    /// Fewest rows of a table [default: 1]
    #[arg(long, value_name = "M", requires = "max_rows")]
    min_rows: Option<u64>,
    /// A person is protected, and not each row alone; the first N rows of each count
    #[arg(long, value_name = "N", requires = "max_rows")]
    rows_per_person: Option<u16>,
    /// Weights of sites: rows, or precision, for a population that all sites share [default: rows]
    #[arg(long, value_name = "rows|precision", requires = "max_rows", value_parser = parse::<SiteWeights>)]
    site_weights: Option<SiteWeights>,
}

impl SiteArgs {
    fn terms(&self) -> Option<SiteTerms> {
        Some(SiteTerms {
            min_rows: self.min_rows.unwrap_or(1),
            rows_per_person: self.rows_per_person,
            site_weights: self.site_weights.unwrap_or_default(),
            ..SiteTerms::new(self.max_rows?)
        })
    }
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Name shown to people
    #[arg(long)]
    name: String,
    /// Dimension of a row; the number of lines of --features when absent
    #[arg(long, value_name = "P", required_unless_present_any = ["features", "columns", "second_round_of"])]
    p: Option<usize>,
    /// Default number of components of an estimate
    #[arg(long, value_name = "K|auto", default_value = "auto", value_parser = rank)]
    k: ComponentCount,
    /// Privacy-loss bound ε of one report, at most 16
    #[arg(long, value_name = "E", required_unless_present = "second_round_of")]
    epsilon: Option<f64>,
    #[command(flatten)]
    mechanism: MechanismArgs,
    /// CSV with the columns name,center,scale: public constants of the features; and label,unit,description: what
    /// participants read about them
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
    /// Who may take part: open (anybody who knows the identifier) or token (anybody who has a one-time token, see study
    /// tokens) [default: open; token for a study of sites]
    #[arg(long, value_parser = parse::<Enrolment>)]
    enrolment: Option<Enrolment>,
    /// Participants have private weights above 0 and at most 1 (see report --weight) instead of counting equally
    #[arg(long)]
    weights: bool,
    /// Public mean of the weights; not needed with private centring of normalised rows, which measures it
    #[arg(long, value_name = "W", requires = "weights", value_parser = mean_weight)]
    mean_weight: Option<f64>,
    /// Leave the study in draft
    #[arg(long)]
    draft: bool,
    /// Create the study although another one has this name: neither can then be found by name
    #[arg(long)]
    same_name: bool,
    #[command(flatten)]
    sites: SiteArgs,
    #[command(flatten)]
    preparation: PreparationArgs,
    #[command(flatten)]
    about: AboutArgs,
}

/// A preparation.
#[derive(Debug, Args)]
#[command(next_help_heading = "Preparation: each report is one answer about one column")]
struct PreparationArgs {
    /// CSV with the columns name,kind: what is asked about. A kind is number LO HI, yes-no or categories A|B|C, and
    /// may-be-missing behind it where cells may be missing; with label,unit,description for participants to read
    #[arg(long, value_name = "FILE", conflicts_with_all = ["p", "features", "k", "second_round_of"])]
    columns: Option<PathBuf>,
    /// The second round of this preparation, for other people, at its epsilon: its identifier, the beginning of it, or
    /// its name
    #[arg(long, value_name = "ID", conflicts_with_all = ["p", "features", "k", "epsilon"])]
    second_round_of: Option<String>,
}

/// The notice that participants read on the study's page and in their receipts.
#[derive(Debug, Args)]
#[command(next_help_heading = "What participants are told (fixed with the study)")]
struct AboutArgs {
    /// Purpose of the results, in a sentence or two
    #[arg(long, value_name = "TEXT")]
    purpose: Option<String>,
    /// The person or organisation responsible for the study
    #[arg(long, value_name = "NAME")]
    responsible_party: Option<String>,
    /// How to reach the responsible party: an e-mail address, or a page that begins with https://
    #[arg(long, value_name = "ADDRESS")]
    contact: Option<String>,
    /// Last day (UTC) on which reports are accepted, such as 2027-03-31 [default: until the study is closed]
    #[arg(long, value_name = "DATE", value_parser = parse::<UtcDate>)]
    last_day: Option<UtcDate>,
}

impl AboutArgs {
    /// The notice, with what it says of the study's features.
    fn about(&self, features: Option<Vec<FeatureNotice>>) -> Result<StudyNotice> {
        let about = StudyNotice {
            purpose: self.purpose.clone(),
            responsible_party: self.responsible_party.clone(),
            contact: self.contact.clone(),
            last_day: self.last_day,
            features,
        };
        about.check()?;
        Ok(about)
    }
}

pub(crate) async fn run(args: &StudyArgs, json: bool) -> Result<()> {
    let client = args.operator.client()?;
    let document = match &args.command {
        StudyCommand::Create(create) => {
            let request = match &create.preparation.second_round_of {
                Some(first) => second_round(&client, create, first).await?,
                None => request(create)?,
            };
            // Fails here, with the server's message, before anything is created.
            let params = request.params()?;
            if !create.same_name {
                check_name_is_free(&client.list().await?, &create.name)?;
            }
            let created = client.create_study(&request).await?;
            output::print_notes(&creation_notes(&request, &params));
            created
        }
        StudyCommand::Show(study) => client.study(&study.find(&client).await?).await?,
        StudyCommand::Open(study) => client.open(&study.find(&client).await?).await?,
        StudyCommand::Close(study) => client.close(&study.find(&client).await?).await?,
        StudyCommand::Tokens { study, wanted } => {
            let id = study.find(&client).await?;
            return tokens(&client, &id, wanted, json).await;
        }
        StudyCommand::Export { study, out } => {
            let id = study.find(&client).await?;
            let mut file = files::NewFile::create(out)?;
            let bytes = client.export(&id, file.writer()).await?;
            file.persist()?;
            return print_written(json, bytes, out);
        }
        StudyCommand::Import { file, into } => {
            let bytes = files::read(file)?;
            let into = match into {
                Some(into) => Some(find_study(&client, into).await?),
                None => None,
            };
            let receipt = client.import(bytes.into(), into.as_deref()).await?;
            if json {
                return output::json(&receipt);
            }
            output::text(&format!(
                "{}: {} added",
                receipt.outcome.as_str(),
                counted(receipt.reports, "report")
            ))?;
            receipt.study
        }
        StudyCommand::Delete { study, .. } => {
            let id = study.find(&client).await?;
            client.delete(&id).await?;
            let deleted = serde_json::json!({ "deleted": id });
            return output::json_or_text(json, &deleted, &format!("study {id} is deleted"));
        }
        StudyCommand::List => {
            let studies = client.list().await?;
            if json {
                return output::json(&serde_json::json!({ "studies": studies }));
            }
            if studies.is_empty() {
                return output::text("no studies yet; create one with: eigenveil study create");
            }
            for study in &studies {
                output::text(&format!(
                    "{}  {:<6}  {:>10} {:<7}  {}",
                    study.id,
                    study.state.as_str(),
                    study.reports_accepted,
                    plural(study.reports_accepted, "report"),
                    study.name
                ))?;
            }
            return Ok(());
        }
    };
    show(&document, json)
}

/// Parses a public mean of weights; NaN is refused, because JSON would drop it silently.
fn mean_weight(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(mean) if MEAN_WEIGHT_RANGE.contains(&mean) => Ok(mean),
        _ => Err(format!(
            "a mean weight is a number from {} to {}",
            MEAN_WEIGHT_RANGE.start(),
            MEAN_WEIGHT_RANGE.end()
        )),
    }
}

/// Refuses the name of another study: participants and `--study NAME` find studies by it.
fn check_name_is_free(studies: &[StudySummary], name: &str) -> Result<()> {
    let mut studies = studies.iter();
    match studies.find(|study| study.name.trim() == name.trim()) {
        None => Ok(()),
        Some(study) => Err(CliError::usage(format!(
            "there is a study named {name:?} already ({}, {}); choose another name, or give --same-name",
            study.id,
            study.state.as_str()
        ))),
    }
}

/// Creates tokens, in as many requests as necessary, or counts them.
async fn tokens(client: &OperatorClient, id: &str, wanted: &TokenArgs, json: bool) -> Result<()> {
    let Some(out) = &wanted.out else {
        let counts = client.token_counts(id).await?;
        let mut text = format!("{} made, {} spent", counts.issued, counts.spent);
        for token in &counts.sites {
            let used = if token.spent { "spent" } else { "not spent" };
            text += &format!(
                "\n{used:<9}  at most {:>10}  {}",
                token.max_rows, token.site
            );
        }
        return output::json_or_text(json, &counts, &text);
    };
    let mut file = files::NewFile::create(out)?;
    let mut write = |issued: Vec<ParticipantToken>| {
        let lines: String = issued.iter().map(|token| token.reveal() + "\n").collect();
        file.write(lines.as_bytes())
    };
    let count = wanted.count.unwrap_or(1);
    if let Some(site) = &wanted.site {
        let token = NewSiteToken {
            site: site.clone(),
            max_rows: wanted.max_rows,
        };
        write(client.issue_site_tokens(id, vec![token]).await?)?;
    } else {
        let mut left = usize::try_from(count).unwrap_or(usize::MAX);
        while left > 0 {
            let now = left.min(MAX_TOKENS_PER_REQUEST);
            write(client.issue_tokens(id, now).await?)?;
            left -= now;
        }
    }
    file.persist()?;
    let out = out.display().to_string();
    let answer = serde_json::json!({ "count": count, "out": out });
    output::json_or_text(
        json,
        &answer,
        &format!("{} written to {out}", counted(count, "token")),
    )
}

/// The second round of a preparation: the intervals that its first round has found.
async fn second_round(
    client: &OperatorClient,
    create: &CreateArgs,
    first: &str,
) -> Result<CreateStudyRequest> {
    let id = find_study(client, first).await?;
    let (first, answers) = (client.study(&id).await?, client.answers(&id).await?);
    create.preparation_request(second_round_of(&first, &answers, &create.name)?)
}

impl CreateArgs {
    /// A preparation with what flags say; those without effect are refused by the request itself.
    fn preparation_request(&self, usual: CreateStudyRequest) -> Result<CreateStudyRequest> {
        Ok(CreateStudyRequest {
            preparation: usual.preparation,
            weights: self.weights.then_some(Weights {
                mean: self.mean_weight,
            }),
            draft: self.draft,
            enrolment: self.enrolment.unwrap_or(usual.enrolment),
            about: self.about.about(None)?.or(usual.about),
            sites: self.sites.terms(),
            ..self.mechanism.study(&self.name, 0, usual.epsilon, None)?
        })
    }
}

fn request(create: &CreateArgs) -> Result<CreateStudyRequest> {
    // Clap requires it, unless it is that of a first round.
    let epsilon = create
        .epsilon
        .ok_or_else(|| CliError::usage("give --epsilon"))?;
    if let Some(path) = &create.preparation.columns {
        let (columns, notices) = questions::parse(path, &files::read_text(path)?)?;
        let after = None;
        let preparation = PreparationRequest { columns, after };
        let mut usual = CreateStudyRequest::of_preparation(&create.name, epsilon, preparation);
        usual.about.features = notices;
        return create.preparation_request(usual);
    }
    let path = create.features.as_deref();
    let (features, notices) = path.map(tables::read_constants).transpose()?.unzip();
    let dimension = match (create.p, &features) {
        (Some(p), _) => p,
        (None, Some(features)) => features.len(),
        (None, None) => return Err(CliError::usage("give --p or --features")),
    };
    let design = create
        .mechanism
        .study(&create.name, dimension, epsilon, features)?;
    let sites = create.sites.terms();
    let usual = match sites {
        Some(_) => Enrolment::Token,
        None => Enrolment::Open,
    };
    Ok(CreateStudyRequest {
        default_k: create.k,
        weights: create.weights.then_some(Weights {
            mean: create.mean_weight,
        }),
        draft: create.draft,
        enrolment: create.enrolment.unwrap_or(usual),
        about: create.about.about(notices.flatten())?,
        sites,
        ..design
    })
}

/// Notes for whoever creates a study, before anybody sends a report.
fn creation_notes(request: &CreateStudyRequest, params: &Parameters) -> Vec<String> {
    let mut notes = Vec::new();
    let missing = request.about.missing();
    if !missing.is_empty() {
        notes.push(format!(
            "participants read \"not stated\" for: {}; it cannot be stated later (--purpose, --responsible-party, --contact, --last-day)",
            missing.join(", ")
        ));
    }
    let features = request.features.as_deref().unwrap_or_default();
    let constants = params.preprocessing().ok();
    if constants.is_some_and(|constants| constants.centring.is_none())
        && features.iter().all(|feature| feature.center == 0.0)
    {
        notes.push(
            "no center is subtracted: if the values are not around 0, the first component is the mean, or the column with the largest numbers; eigenveil prepare makes centers and scales from public rows or from a preparation (study create --columns), and --centring removes the mean privately"
                .to_owned(),
        );
    }
    let refused =
        constants.and_then(|constants| MomentEstimate::check_preprocessing(constants).err());
    notes.extend(refused.map(|why| why.detail().to_owned()));
    notes.extend(params.rows().ok().and_then(slow_report_note));
    notes
}

fn show(study: &StudyDocument, json: bool) -> Result<()> {
    if json {
        return output::json(study);
    }
    let terms = StudyTerms {
        name: Some(study.name.clone()),
        about: study.about.clone(),
        parameters: Some(study.params.clone()),
    };
    output::text(&format!(
        "study        {}\nstate        {}\nreports      {}\nenrolment    {}\nfingerprint  {}\ndimension    {}\n{terms}{}",
        study.id,
        study.state.as_str(),
        study.reports_accepted,
        study.enrolment.as_str(),
        study.fingerprint,
        study.params.dimension(),
        output::privacy_text(&study.privacy)
    ))
}
