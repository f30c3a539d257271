//! A form for a new study, with the planner beside it.

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use eigenveil_estimation::{
    format::{three_digits, with_thousands},
    statistics::MomentEstimate,
};
use eigenveil_figures::Figure;
use eigenveil_shared::{Error, error, mechanism::MechanismKind};
use maud::{Markup, html};

use super::{
    design::{Design, FieldErrors, NORMS, PLANNED},
    images, layout,
    planner::{self, Outlook},
    preparation,
    visitor::{Fields, OperatorForm, Visitor},
};
use crate::{
    app::AppState,
    http::{ApiError, run_blocking},
};

pub(super) async fn show(visitor: Visitor) -> Result<Response, ApiError> {
    if !visitor.is_logged_in() {
        return Ok(layout::see_other(&visitor, "/login?next=/studies/new"));
    }
    visitor.require_operator()?;
    let fields = Fields::parse(DEFAULTS.as_bytes());
    form(visitor, fields, StatusCode::OK, FieldErrors::default()).await
}

const DEFAULTS: &str = "dimension=64&k=auto&norm=normalize&radius=1&mechanism=double-cap&epsilon=4&delta=0.000001&enrolment=open&users=50000";

/// Creates the study, or shows the form again with the planner if `step=plan` or something is wrong.
pub(super) async fn submit(
    State(app): State<AppState>,
    OperatorForm { visitor, fields }: OperatorForm,
) -> Result<Response, ApiError> {
    let design = Design::read(&fields);
    let errors = match design {
        Err(errors) => errors,
        Ok(_) if fields.get("step") != "create" => FieldErrors::default(),
        Ok(design) if is_name_taken(&app, &design.request.name) => FieldErrors::from(error!(
            InvalidName,
            "there is a study of this name already, and people find studies by their names: choose another one"
        )),
        Ok(design) => match app.store().create_study(design.request).await {
            Ok(study) => {
                tracing::info!(study = %study.id(), "study created");
                return Ok(layout::see_other(
                    &visitor,
                    &format!("/studies/{}", study.id()),
                ));
            }
            Err(error) if error.field().is_some() => error.into(),
            Err(error) => return Err(error.into()),
        },
    };
    let status = match fields.get("step") == "create" {
        true => StatusCode::UNPROCESSABLE_ENTITY,
        false => StatusCode::OK,
    };
    form(visitor, fields, status, errors).await
}

fn is_name_taken(app: &AppState, name: &str) -> bool {
    app.store()
        .studies()
        .iter()
        .any(|study| study.name().trim() == name.trim())
}

/// The planner alone, as the script requests it while somebody types.
pub(super) async fn preview(
    OperatorForm { visitor, fields }: OperatorForm,
) -> Result<Response, ApiError> {
    let markup = run_blocking(move || Ok(planner(&visitor, &fields))).await?;
    Ok(axum::response::Html(markup.into_string()).into_response())
}

/// The planner's figure; its query is the form's fields.
pub(super) async fn curve(visitor: Visitor, fields: Fields) -> Result<Response, ApiError> {
    visitor.require_operator()?;
    let svg = run_blocking(move || {
        let design = Design::read_for_planner(&fields).map_err(FieldErrors::first)?;
        let outlooks: Vec<Outlook> = design
            .epsilons()
            .into_iter()
            .filter_map(|epsilon| design.outlook(epsilon))
            .collect();
        let chart = planner::compare(&outlooks, design.users);
        let chart = chart.ok_or_else(no_chart_error)?;
        Ok(chart.to_svg_of_width(images::width(&fields)))
    })
    .await?;
    Ok(images::svg(svg.into()))
}

fn no_chart_error() -> Error {
    Error::invalid_request("no direction can show with this design; the form says why")
}

async fn form(
    visitor: Visitor,
    fields: Fields,
    status: StatusCode,
    errors: FieldErrors,
) -> Result<Response, ApiError> {
    let response = run_blocking(move || {
        let content = content(&visitor, &fields, &errors);
        Ok(layout::page(&visitor, status, "Create a study", &content))
    });
    Ok(response.await?)
}

fn content(visitor: &Visitor, fields: &Fields, errors: &FieldErrors) -> Markup {
    let form = Form { fields, errors };
    let mechanisms: Vec<_> = MechanismKind::ALL
        .iter()
        .map(|kind| (kind.as_str(), kind.as_str()))
        .collect();
    let mechanism_help = format!(
        "What each device does to its row before anything leaves it. {}.",
        MechanismKind::summaries()
    );
    html! {
        h1 { "Create a study" }
        p { "Parameters are frozen once the study exists. The planner shows what that many participants can show while you choose them." }
        @if !errors.is_empty() {
            div #errors .wrong role="alert" {
                p { "The study was not created:" }
                ul { @for (name, message) in errors.iter() { li { a href={ "#" (name) } { (message) } } } }
            }
        }
        form #create method="post" action=(visitor.link("/studies/new"))
            data-preview=(visitor.link("/studies/new/plan")) {
            (layout::csrf_token(visitor))
            div .columns {
                div {
                    fieldset {
                        legend { "The data" }
                        (form.text("name", "Name", "Shown to everybody.", "text"))
                        (form.text("features", "Features (optional)", "The file that eigenveil prepare writes, pasted; or one feature a line: name, or name,center,scale. If cells may be missing, name,center,scale,observed with the public share of people who have the value. Columns label, unit and description tell participants what a feature means. Public constants, never computed from the participants' rows.", "lines"))
                        // Shown by the script, which reads the file into the field above.
                        div #features-from .field hidden {
                            label for="features-file" { "Read the features from a file" }
                            input #features-file type="file" accept=".csv,.tsv,.txt,text/plain,text/csv";
                        }
                        (form.text("columns", "Columns of a preparation (optional)", "A preparation finds centers and scales without public rows: each participant answers one question about one column. The file, pasted: name,kind and if you like label,unit,description. A kind is number LO HI, yes-no or categories A|B|C, with may-be-missing behind it where cells may be missing. Of the other fields only name, ε, who may take part and what participants are told then count.", "lines"))
                        (form.text("dimension", "Features p", "Numbers in each participant's row; not used where features are listed.", "number"))
                        (form.text("k", "Components k", "A whole number, or auto: those before the last gap that noise does not explain.", "text"))
                        (form.choice("norm", "Rows are brought into the unit ball by", "On each device, before anything else.", NORMS))
                        (form.text("radius", "Radius R", "For clip and require: a public constant.", "decimal"))
                        (form.checkbox("centring", "Private centring: estimate and remove the mean too"))
                    }
                    fieldset {
                        legend { "What participants are told" }
                        p .help { "Shown word for word on the study's page and in their receipts; an empty field is shown as \"not stated\". It cannot be changed later." }
                        (form.text("purpose", "Purpose", "What the results are for, in a sentence or two.", "text"))
                        (form.text("responsible_party", "Responsible", "The person or organisation responsible for the study.", "text"))
                        (form.text("contact", "Contact", "An e-mail address, or a page that begins with https://.", "text"))
                        (form.text("last_day", "Last day (UTC)", "Such as 2027-03-31: no report is accepted after it. Empty: until you close the study.", "date"))
                    }
                    fieldset {
                        legend { "Privacy and people" }
                        (form.choice("mechanism", "Mechanism", &mechanism_help, &mechanisms))
                        (form.text("epsilon", "ε of one report", "Smaller is more private. Above 8 one report may give a row away; 16 is the maximum.", "decimal"))
                        (form.text("delta", "δ of one report", "For the Gaussian mechanisms; double-cap has none.", "decimal"))
                        (form.choice("enrolment", "Who may take part", "With tokens each participant can report only once: you make one token for each and hand it out.", &[
                            ("open", "anybody with the address"),
                            ("token", "anybody with a one-time token"),
                        ]))
                        (form.checkbox("draft", "Create it as a draft: nobody can take part before you open it"))
                    }
                    fieldset {
                        legend { "Sites (optional)" }
                        (form.choice("unit", "Who sends a report", "A site, such as a hospital, has a table of many rows, and a token with its name. Private centring is on.", &[
                            ("row", "a participant, of a single row"),
                            ("site", "a site, of a table"),
                        ]))
                        (form.text("max_rows", "Rows of the largest table", "Of sites only; persons, where persons are protected.", "number"))
                        (form.text("rows_per_person", "Rows of a person that count (optional)", "Of sites only, at most 1,000: a person is then protected, and not each row alone.", "number"))
                    }
                    fieldset {
                        legend { "For the planner only" }
                        (form.text("users", "Participants expected", "Not part of the study.", "number"))
                        (form.text("spectrum", "Eigenvalues (optional)", "The leading ones of public rows, such as 0.3,0.2,0.05: what eigenveil prepare prints after --spectrum. With them the planner says the error to expect.", "text"))
                        (form.text("mean_squared_length", "Mean squared length", "Of the prepared rows, at most 1: what it prints after --mean-squared-length. For the eigenvalues.", "decimal"))
                        (form.text("mean_length", "Length of the mean", "Of the prepared rows: what it prints after --mean-length. For the eigenvalues.", "decimal"))
                    }
                    p .actions {
                        button type="submit" name="step" value="plan" { "Show what it can show" }
                        " "
                        button .primary type="submit" name="step" value="create" { "Create the study" }
                    }
                }
                section #planner aria-label="Planner" aria-live="polite" { (planner(visitor, fields)) }
            }
        }
    }
}

/// Shows the outlook of the form's design: for half, once and twice its ε, and for n, n/10 and 10 n participants.
fn planner(visitor: &Visitor, fields: &Fields) -> Markup {
    let design = match Design::read_for_planner(fields) {
        Ok(design) => design,
        Err(errors) => {
            return html! {
                h2 { "What it can show" }
                p .wrong { (errors.first().detail()) }
            };
        }
    };
    if let Ok(params) = design.params().preparation() {
        return html! {
            (preparation::plan(params, design.users))
            (privacy_section(&design))
        };
    }
    if design.request.sites.is_some() {
        return html! {
            h2 { "What it can show" }
            p { "Studies of sites are not planned here." }
            (privacy_section(&design))
        };
    }
    let Some(outlook) = design.outlook(design.request.epsilon) else {
        return html! {
            h2 { "What it can show" }
            p .wrong { "All components are requested: the subspace is then the whole space. k must be below p." }
        };
    };
    let numbers = [
        design.users / 10,
        design.users,
        design.users.saturating_mul(10),
    ]
    .map(|n| n.max(1));
    // The features, which are not in the query, say how many they are.
    let query = fields.with("dimension", &design.request.dimension.to_string());
    let query = query.query(PLANNED);
    html! {
        h2 { "What it can show" }
        @if design.request.features.is_some() {
            p #listed .muted { "p = " (design.request.dimension) ", the features that are listed." }
        }
        p #visible { (outlook.sentences(design.users).unwrap_or_default()) }
        (images::figure(visitor, &format!("/studies/new/curve.svg?{query}"), "The smallest direction that shows against the number of participants, for three values of epsilon; the table below has numbers."))
        div .scroll tabindex="0" role="region" aria-label="The smallest direction that shows" {
            table #plan {
                caption { "The smallest direction that shows, in points of the variance above average" }
                thead { tr {
                    th scope="col" { "ε" }
                    @for n in numbers { th scope="col" { "n = " (with_thousands(n)) } }
                } }
                tbody {
                    @for outlook in design.epsilons().into_iter().filter_map(|e| design.outlook(e)) {
                        tr {
                            th scope="row" { (outlook.epsilon()) }
                            @for n in numbers {
                                td { (outlook.with_participants(n).map_or_else(|| "–".to_owned(), |found| planner::visible_points(&found))) }
                            }
                        }
                    }
                }
            }
        }
        @if design.population.is_some() { (expected_errors(&design, numbers)) }
        @if let Err(why) = design.params().preprocessing().and_then(MomentEstimate::check_preprocessing) {
            p #no-moment .help { "No correlations: " (why.detail()) "." }
        }
        (privacy_section(&design))
    }
}

/// The figures of a plan for people like the public rows.
fn expected_errors(design: &Design, numbers: [u64; 3]) -> Markup {
    let k = design.components();
    let cell = |epsilon: f64, n: u64| {
        let plan = design.expected(epsilon, n)?;
        let (error, above) = (plan.error?.central, plan.components_above?);
        Some(format!("{} ({above} of {k})", three_digits(error)))
    };
    html! {
        div .scroll tabindex="0" role="region" aria-label="The error to expect" {
            table #expected {
                caption { "Expected error ‖V̂V̂ᵀ − VVᵀ‖ for k = " (k) ", of people like the public rows, and how many components stand above the noise floor" }
                thead { tr {
                    th scope="col" { "ε" }
                    @for n in numbers { th scope="col" { "n = " (with_thousands(n)) } }
                } }
                tbody {
                    @for epsilon in design.epsilons() {
                        tr {
                            th scope="row" { (epsilon) }
                            @for n in numbers { td { (cell(epsilon, n).unwrap_or_else(|| "–".to_owned())) } }
                        }
                    }
                }
            }
        }
    }
}

fn privacy_section(design: &Design) -> Markup {
    let privacy = design.privacy();
    html! {
        h3 { "What it promises a participant" }
        p { (privacy.sentence) }
        (layout::warning_list(None, &privacy.warnings))
        p .muted { "One report has " (with_thousands(privacy.report_bytes as u64)) " bytes." }
    }
}

/// The entered values, with their errors.
struct Form<'a> {
    fields: &'a Fields,
    errors: &'a FieldErrors,
}

impl Form<'_> {
    fn text(&self, name: &str, label: &str, help: &str, kind: &str) -> Markup {
        let value = self.fields.get(name);
        let mode = match kind {
            "number" => Some("numeric"),
            "decimal" => Some("decimal"),
            _ => None,
        };
        let of_input = if kind == "date" { "date" } else { "text" };
        self.field(name, label, help, |described, invalid| {
            html! {
                @if kind == "lines" {
                    textarea id=(name) name=(name) rows="3" aria-describedby=(described) aria-invalid=[invalid] { (value) }
                } @else {
                    input id=(name) type=(of_input) inputmode=[mode] name=(name) value=(value)
                        autocomplete="off" aria-describedby=(described) aria-invalid=[invalid];
                }
            }
        })
    }

    fn choice(&self, name: &str, label: &str, help: &str, options: &[(&str, &str)]) -> Markup {
        let chosen = self.fields.get(name);
        self.field(name, label, help, |described, invalid| {
            html! {
                select id=(name) name=(name) aria-describedby=(described) aria-invalid=[invalid] {
                    @for (value, what) in options {
                        option value=(value) selected[*value == chosen] { (what) }
                    }
                }
            }
        })
    }

    /// A labelled input, given by the identifier of its help and by whether it is invalid.
    fn field(
        &self,
        name: &str,
        label: &str,
        help: &str,
        input: impl FnOnce(&str, Option<&str>) -> Markup,
    ) -> Markup {
        let wrong = self.errors.of_field(name);
        let described = format!("{name}-help");
        html! {
            div .field {
                label for=(name) { (label) }
                (input(&described, wrong.map(|_| "true")))
                p id=(described) class=(if wrong.is_some() { "wrong" } else { "help" }) { (wrong.unwrap_or(help)) }
            }
        }
    }

    fn checkbox(&self, name: &str, label: &str) -> Markup {
        html! {
            div .checkbox {
                input id=(name) type="checkbox" name=(name) value="yes" checked[self.fields.has(name)];
                " " label for=(name) { (label) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_form_is_a_valid_design() {
        let fields = Fields::parse(DEFAULTS.as_bytes());
        let design = Design::read_for_planner(&fields).unwrap();
        assert!(design.outlook(4.0).is_some());
        // Only the name is missing.
        let errors = Design::read(&fields).err().unwrap();
        assert_eq!(
            errors.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            ["name"]
        );
    }
}
