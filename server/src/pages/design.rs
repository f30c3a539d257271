//! Parsing the form of a new study.

use std::{num::NonZeroU32, path::Path};

use eigenveil_estimation::planning::{DEFAULT_COMPONENTS, PlanResult};
use eigenveil_shared::{
    Error, Result,
    about::{FeatureNotice, StudyNotice, UtcDate},
    api::{CreateStudyRequest, PreparationRequest},
    enrolment::Enrolment,
    estimate::ComponentCount,
    mechanism::{Calibration, MechanismKind},
    parameters::Parameters,
    preprocess::{DEFAULT_CENTRING, Feature, Norm},
    privacy::{MAX_EPSILON, PrivacyStatement},
    site_study::SiteTerms,
    study::StudyParams,
};
use eigenveil_store::{check_component_count, check_name};
use eigenveil_tables::{features as features_file, questions};

use super::{
    planner::Outlook,
    population::Population,
    visitor::{Fields, wrong},
};

pub(super) const NORMS: &[(&str, &str)] = &[
    ("normalize", "dividing by their length"),
    ("clip", "clipping to length R"),
    ("require", "requiring length R at most"),
];
/// The fields that determine the planner's figure.
pub(super) const PLANNED: &[&str] = &[
    "dimension",
    "k",
    "norm",
    "radius",
    "centring",
    "mechanism",
    "epsilon",
    "delta",
    "users",
];

/// Errors of a form, one per field; those of no field stand beside the name, at the top.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldErrors(Vec<Error>);

impl From<Error> for FieldErrors {
    fn from(error: Error) -> Self {
        Self(vec![error])
    }
}

impl FieldErrors {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let errors = self.0.iter();
        errors.map(|error| (error.field().unwrap_or("name"), error.detail()))
    }

    pub(super) fn of_field(&self, name: &str) -> Option<&str> {
        let mut all = self.iter();
        all.find(|(field, _)| *field == name).map(|(_, text)| text)
    }

    /// The first one, where there is room for only one.
    pub(super) fn first(self) -> Error {
        let mut errors = self.0.into_iter();
        errors.next().unwrap_or_else(|| Error::invalid_request(""))
    }

    fn add(&mut self, error: Error) {
        if self.of_field(error.field().unwrap_or("name")).is_none() {
            self.0.push(error);
        }
    }

    /// The value, or its default and an error.
    fn value_or<T>(&mut self, read: Result<T>, default: T) -> T {
        read.unwrap_or_else(|error| {
            self.add(error);
            default
        })
    }
}

/// The study requested in the form, with what the planner needs.
pub(super) struct Design {
    pub(super) request: CreateStudyRequest,
    pub(super) users: u64,
    /// The people whose spectrum public rows show.
    pub(super) population: Option<Population>,
    params: Parameters,
}

impl Design {
    pub(super) fn read(fields: &Fields) -> Result<Self, FieldErrors> {
        let mut errors = FieldErrors::default();
        errors.value_or(check_name("the name of the study", fields.get("name")), ());
        let about = about(fields, &mut errors);
        match Self::read_for_planner(fields) {
            Ok(mut design) if errors.is_empty() => {
                design.request.about = about.or(design.request.about);
                Ok(design)
            }
            design => {
                let others = design.err().unwrap_or_default();
                others.0.into_iter().for_each(|error| errors.add(error));
                Err(errors)
            }
        }
    }

    /// Reads like [`read`](Self::read), without the name and the participants' notice.
    pub(super) fn read_for_planner(fields: &Fields) -> Result<Self, FieldErrors> {
        if !fields.get("columns").trim().is_empty() {
            return Self::read_preparation(fields);
        }
        let mut errors = FieldErrors::default();
        let mechanism = fields.get("mechanism").parse();
        let mechanism = errors.value_or(mechanism, MechanismKind::default());
        let delta = match mechanism.is_pure() || fields.get("delta").is_empty() {
            true => None,
            false => Some(errors.value_or(fields.number("delta"), 1e-6)),
        };
        let k = match fields.get("k") {
            "" | "auto" => Ok(ComponentCount::Auto),
            text => text
                .parse()
                .map(ComponentCount::Fixed)
                .map_err(|_| wrong("k", text, "a whole number such as 5, or auto")),
        };
        let radius = |errors: &mut FieldErrors| errors.value_or(fields.number("radius"), 1.0);
        let features = errors.value_or(features(fields.get("features")), None);
        let request = CreateStudyRequest {
            name: fields.get("name").to_owned(),
            dimension: match &features {
                Some(features) => features.len(),
                None => errors.value_or(whole(fields, "dimension"), 2) as usize,
            },
            features,
            norm: match fields.get("norm") {
                "clip" => Norm::Clip {
                    radius: radius(&mut errors),
                },
                "require" => Norm::Require {
                    radius: radius(&mut errors),
                },
                _ => Norm::Normalize,
            },
            centring: fields.has("centring").then_some(DEFAULT_CENTRING),
            weights: None,
            mechanism: Some(mechanism),
            calibration: Calibration::default(),
            epsilon: errors.value_or(fields.number("epsilon"), 1.0),
            delta,
            default_k: errors.value_or(k, ComponentCount::Auto),
            draft: fields.has("draft"),
            enrolment: match (fields.get("enrolment"), fields.get("unit")) {
                // Of sites only with tokens.
                ("token", _) | (_, "site") => Enrolment::Token,
                _ => Enrolment::Open,
            },
            about: StudyNotice::default(),
            sites: (fields.get("unit") == "site").then(|| sites(fields, &mut errors)),
            preparation: None,
        };
        let users = errors.value_or(whole(fields, "users"), 1);
        if !errors.is_empty() {
            return Err(errors);
        }
        let params = request.params()?;
        check_component_count(request.default_k, params.dimension())?;
        let k = components(request.default_k, params.dimension());
        Ok(Self {
            request,
            users,
            population: match params.rows() {
                Ok(params) => Population::read(fields, params, k)?,
                Err(_) => None,
            },
            params,
        })
    }

    /// A preparation, for which the fields of a study's rows mean nothing.
    fn read_preparation(fields: &Fields) -> Result<Self, FieldErrors> {
        let mut errors = FieldErrors::default();
        let read = questions::parse(Path::new("columns"), fields.get("columns"));
        let read = read.map_err(|why| Error::invalid_request(why.detail()).with_field("columns"));
        let (columns, notices) = errors.value_or(read, (Vec::new(), None));
        let epsilon = errors.value_or(fields.number("epsilon"), 1.0);
        let users = errors.value_or(whole(fields, "users"), 1);
        if !errors.is_empty() {
            return Err(errors);
        }
        let after = None;
        let preparation = PreparationRequest { columns, after };
        let mut request =
            CreateStudyRequest::of_preparation(fields.get("name"), epsilon, preparation);
        request.draft = fields.has("draft");
        request.about.features = notices;
        if fields.get("enrolment") == "token" {
            request.enrolment = Enrolment::Token;
        }
        let params = request.params()?;
        Ok(Self {
            request,
            users,
            population: None,
            params,
        })
    }

    /// The study of the request.
    pub(super) fn params(&self) -> &Parameters {
        &self.params
    }

    /// Components that the planner looks at.
    pub(super) fn components(&self) -> usize {
        components(self.request.default_k, self.params.dimension())
    }

    /// Half of ε, ε and twice ε, as far as a study may have them.
    pub(super) fn epsilons(&self) -> Vec<f64> {
        let epsilon = self.request.epsilon;
        [epsilon / 2.0, epsilon, epsilon * 2.0]
            .into_iter()
            .filter(|e| *e <= MAX_EPSILON)
            .collect()
    }

    /// The outlook of the study at this ε; `None` if all components are requested, and for a study of sites.
    pub(super) fn outlook(&self, epsilon: f64) -> Option<Outlook> {
        Outlook::of(&self.params_at(epsilon)?, self.request.default_k)
    }

    /// The error to expect at this ε of `n` people like the public rows; `None` without their spectrum.
    pub(super) fn expected(&self, epsilon: f64, n: u64) -> Option<PlanResult> {
        let population = self.population.as_ref()?;
        population.with_participants(&self.params_at(epsilon)?, n)
    }

    fn params_at(&self, epsilon: f64) -> Option<StudyParams> {
        if epsilon == self.request.epsilon {
            return self.params.rows().ok().cloned();
        }
        let request = CreateStudyRequest {
            epsilon,
            ..self.request.clone()
        };
        request.params().ok()?.into_rows().ok()
    }

    pub(super) fn privacy(&self) -> PrivacyStatement {
        self.params.privacy()
    }
}

/// The terms of a study of sites.
fn sites(fields: &Fields, errors: &mut FieldErrors) -> SiteTerms {
    let mut terms = SiteTerms::new(errors.value_or(whole(fields, "max_rows"), 1));
    if !fields.get("rows_per_person").is_empty() {
        let rows =
            whole(fields, "rows_per_person").map(|rows| u16::try_from(rows).unwrap_or(u16::MAX));
        terms.rows_per_person = Some(errors.value_or(rows, 1));
    }
    terms
}

fn components(k: ComponentCount, p: usize) -> usize {
    match k {
        ComponentCount::Fixed(k) => k,
        ComponentCount::Auto => DEFAULT_COMPONENTS.min(p.saturating_sub(1)),
    }
}

fn whole(fields: &Fields, name: &'static str) -> Result<u64> {
    let text = fields.get(name);
    let digits = text.replace([',', ' ', '_'], "");
    let value = digits.parse::<NonZeroU32>();
    let value = value.map(|value| u64::from(value.get()));
    value.map_err(|_| wrong(name, text, "a whole number from 1 on, such as 100"))
}

fn about(fields: &Fields, errors: &mut FieldErrors) -> StudyNotice {
    let about = StudyNotice {
        purpose: stated(fields, "purpose"),
        responsible_party: stated(fields, "responsible_party"),
        contact: stated(fields, "contact"),
        last_day: errors.value_or(last_day(fields.get("last_day")), None),
        features: errors.value_or(notices(fields.get("features")), None),
    };
    errors.value_or(about.check(), ());
    about
}

/// The text of a field; `None` if it is empty.
fn stated(fields: &Fields, name: &str) -> Option<String> {
    Some(fields.get(name))
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn last_day(text: &str) -> Result<Option<UtcDate>> {
    Some(text)
        .filter(|text| !text.is_empty())
        .map(str::parse)
        .transpose()
}

/// Meanings of the features in a features file, for people.
fn notices(text: &str) -> Result<Option<Vec<FeatureNotice>>> {
    let read = features_file::parse_notices(Path::new("features"), text);
    read.map_err(|error| Error::invalid_request(error.detail()).with_field("features"))
}

/// A features file, as it was pasted or read by the page; or one feature a line: a name, or a name with its public
/// center and scale.
fn features(text: &str) -> Result<Option<Vec<Feature>>> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |why: &str| Error::invalid_request(why).with_field("features");
    if features_file::is_table(text) {
        let read = features_file::parse_constants(Path::new("features"), text);
        return read.map(Some).map_err(|error| wrong(error.detail()));
    }
    let feature = |(i, line): (usize, &str)| {
        let parts: Vec<&str> = line.split(',').map(str::trim).collect();
        let constant = |text: &str| {
            text.parse::<f64>().map_err(|_| {
                format!(
                    "line {}: {text:?} is not a number; write name,center,scale,observed",
                    i + 1
                )
            })
        };
        match parts.as_slice() {
            [name] => Ok(Feature::new(*name, 0.0, 1.0)),
            [name, center, scale, rest @ ..] if rest.len() <= 2 => {
                let mut feature = Feature::new(*name, constant(center)?, constant(scale)?);
                if let Some(observed) = rest.first() {
                    let always = if observed.is_empty() { "1" } else { observed };
                    feature.observed = Some(constant(always)?);
                }
                let section = rest.get(1).filter(|section| !section.is_empty());
                feature.section = section.map(|section| (*section).to_owned());
                Ok(feature)
            }
            _ => Err(format!(
                "line {} is {line:?}; write name, or name,center,scale, or name,center,scale,observed,section",
                i + 1
            )),
        }
    };
    let features = text.lines().enumerate().map(feature);
    let features = features.collect::<Result<_, String>>();
    features.map(Some).map_err(|why| wrong(&why))
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::{
        Cancel,
        planning::{PlanAnswer, PlanRequest, plan},
    };

    use super::*;

    const GOOD: &str =
        "name=n&dimension=8&k=2&norm=normalize&mechanism=double-cap&epsilon=4&users=1000";

    fn read(text: &str) -> Result<Design, FieldErrors> {
        Design::read(&Fields::parse(text.as_bytes()))
    }

    #[test]
    fn columns_make_a_preparation() {
        let columns = "&columns=name,kind,unit%0Aage,number%200%20120,years%0Asmokes,yes-no,";
        let design = read(&format!("{GOOD}{columns}&purpose=p&enrolment=token")).unwrap();
        let params = design.params().preparation().unwrap();
        assert_eq!(params.feature_names(), ["age", "smokes"]);
        let CreateStudyRequest {
            about, enrolment, ..
        } = &design.request;
        assert_eq!(about.feature(0).unwrap().unit.as_deref(), Some("years"));
        assert_eq!(
            (about.purpose.as_deref(), *enrolment),
            (Some("p"), Enrolment::Token)
        );
    }

    #[test]
    fn errors_are_shown_beside_their_field() {
        assert!(read(GOOD).is_ok());
        for (from, to, field) in [
            ("name=n", "name=", "name"),
            ("dimension=8", "dimension=x", "dimension"),
            ("dimension=8", "dimension=0", "dimension"),
            ("k=2", "k=two", "k"),
            ("k=2", "k=9", "k"),
            ("mechanism=double-cap", "mechanism=x", "mechanism"),
            ("epsilon=4", "epsilon=0", "epsilon"),
            ("epsilon=4", "epsilon=17", "epsilon"),
            ("epsilon=4", "epsilon=NaN", "epsilon"),
            ("norm=normalize", "norm=clip&radius=-1", "radius"),
            ("norm=normalize", "norm=clip&radius=", "radius"),
            ("users=1000", "users=-1", "users"),
            ("users=1000", "users=0", "users"),
            ("epsilon=4", "epsilon=4&features=a%0Aa", "features"),
            (
                "epsilon=4",
                "epsilon=4&features=name;scale%0Aa;x",
                "features",
            ),
            ("epsilon=4", "epsilon=4&spectrum=0.3,x", "spectrum"),
            ("epsilon=4", "epsilon=4&spectrum=0.3", "spectrum"),
            (
                "epsilon=4",
                "epsilon=4&spectrum=0.3,0.2&centring=yes",
                "mean_length",
            ),
            (
                "norm=normalize",
                "norm=clip&radius=2&spectrum=0.3,0.2",
                "mean_squared_length",
            ),
            ("epsilon=4", "epsilon=4&features=a,1", "features"),
            ("epsilon=4", "epsilon=4&columns=age", "columns"),
            (
                "epsilon=4",
                "epsilon=4&columns=name,kind%0Aage,number%203%201",
                "columns",
            ),
            (
                "epsilon=4",
                "epsilon=17&columns=name,kind%0Aage,yes-no",
                "epsilon",
            ),
            ("double-cap", "isotropic-gaussian&delta=2", "delta"),
            ("name=n", "name=n&purpose=a%0Ab", "purpose"),
            (
                "name=n",
                "name=n&responsible_party=a%1Bb",
                "responsible_party",
            ),
            ("name=n", "name=n&contact=javascript:alert(1)", "contact"),
            ("name=n", "name=n&last_day=tomorrow", "last_day"),
            ("name=n", "name=n&last_day=2027-02-29", "last_day"),
        ] {
            let errors = read(&GOOD.replace(from, to)).err();
            let errors = errors.unwrap_or_else(|| panic!("{to} was accepted"));
            assert!(errors.of_field(field).is_some(), "{to}: {errors:?}");
        }
        let several = read("k=2").err().unwrap();
        for field in ["name", "dimension", "mechanism", "epsilon", "users"] {
            assert!(several.of_field(field).is_some(), "{field}");
        }
    }

    #[test]
    fn a_site_has_terms_and_a_token() {
        let sites = GOOD.replace(
            "double-cap",
            "discrete-gaussian&unit=site&max_rows=20,000&rows_per_person=5",
        );
        let design = read(&sites).unwrap();
        let terms = design.request.sites.unwrap();
        assert_eq!((terms.max_rows, terms.rows_per_person), (20_000, Some(5)));
        assert_eq!(design.request.enrolment, Enrolment::Token);
        assert!(design.outlook(4.0).is_none());
        assert!(
            design
                .privacy()
                .sentence
                .contains("Each person at one site")
        );
        for (from, to, field) in [
            ("max_rows=20,000", "max_rows=", "max_rows"),
            (
                "rows_per_person=5",
                "rows_per_person=5000",
                "rows_per_person",
            ),
            ("discrete-gaussian", "double-cap", "mechanism"),
        ] {
            let errors = read(&sites.replace(from, to)).err().unwrap();
            assert!(errors.of_field(field).is_some(), "{to}: {errors:?}");
        }
    }

    /// The planner updates while somebody is still typing an address.
    #[test]
    fn the_planner_ignores_incomplete_texts() {
        for typed in ["contact=some", "last_day=2027-0", "purpose=a%0Ab"] {
            let fields = Fields::parse(format!("{GOOD}&{typed}").as_bytes());
            assert!(Design::read_for_planner(&fields).is_ok(), "{typed}");
            assert!(Design::read(&fields).is_err(), "{typed}");
        }
    }

    #[test]
    fn the_query_of_the_figure_is_the_same_design() {
        let planned = |text: &str| {
            let fields = Fields::parse(text.as_bytes());
            let design = Design::read_for_planner(&fields).ok().unwrap();
            let k = design.request.default_k;
            (fields.query(PLANNED), design.params, k, design.users)
        };
        for text in [
            GOOD.to_owned(),
            GOOD.replace("normalize", "clip&radius=2&centring=yes"),
            GOOD.replace("double-cap", "discrete-gaussian&delta=1e-7"),
        ] {
            let design = planned(&format!("{text}&purpose=p"));
            assert!(!design.0.contains("name=") && !design.0.contains("purpose="));
            assert_eq!(planned(&design.0), design);
        }
    }

    /// A pasted file says how many features there are, whatever separates its columns.
    #[test]
    fn a_features_file_is_read_as_the_commands_read_it() {
        let file = "name;center;scale%0D%0Aage;40;20%0D%0A%22size, cm%22;1;2%0D%0Ax;0;1";
        let design = read(&format!("{GOOD}&features={file}")).unwrap();
        assert_eq!(
            (design.request.dimension, design.params.dimension()),
            (3, 3)
        );
        let features = design.request.features.unwrap();
        assert_eq!(
            (features[1].name.as_str(), features[1].scale),
            ("size, cm", 2.0)
        );
    }

    /// The figures of `prepare` and `plan`.
    #[test]
    fn a_spectrum_gives_the_errors_of_a_plan() {
        for (design, request) in [
            ("", r#"{"bound_rows": "normalize"}"#),
            (
                "&norm=clip&radius=3&mean_squared_length=0.8&centring=yes&mean_length=0.2",
                r#"{"bound_rows": "clip", "mean_squared_length": 0.8, "centring": 0.7071067811865476, "mean_length": 0.2}"#,
            ),
        ] {
            let given = design
                .contains("norm=")
                .then(|| GOOD.replace("norm=normalize&", ""));
            let given = given.unwrap_or_else(|| GOOD.to_owned());
            let spectrum = "0.3,0.2,0.15,0.1";
            let design = read(&format!("{given}{design}&spectrum={spectrum}")).unwrap();
            let result = design.expected(4.0, 30_000).unwrap();
            let mut request: serde_json::Value = serde_json::from_str(request).unwrap();
            request["p"] = 8.into();
            request["k"] = 2.into();
            request["epsilon"] = vec![4.0].into();
            request["n"] = vec![30_000].into();
            request["mechanism"] = vec!["double-cap"].into();
            request["spectrum"] = vec![0.3, 0.2, 0.15, 0.1].into();
            let request: PlanRequest = serde_json::from_value(request).unwrap();
            let PlanAnswer::Errors(planned) = plan(&request, None, Cancel::NEVER).unwrap().0 else {
                panic!("a plan without errors")
            };
            let error = result.error.map(|error| error.central);
            assert_eq!(error, planned.rows[0].error);
            assert_eq!(
                result.components_above,
                planned.rows[0].components_above_floor
            );
        }
        assert!(read(GOOD).unwrap().expected(4.0, 1_000).is_none());
    }

    #[test]
    fn a_features_file_tells_people_what_features_mean() {
        let file = "name,center,label,unit%0D%0Aage,40,Age,years%0D%0Aheight,170,,";
        let two = GOOD.replace("dimension=8", "dimension=2");
        let design = read(&format!("{two}&features={file}")).unwrap();
        let meanings = design.request.about.features.unwrap();
        assert_eq!(meanings[0].to_string(), "Age (years)");
        assert_eq!(meanings[1], FeatureNotice::default());
        assert_eq!(design.request.features.unwrap()[1].center, 170.0);
        let wrong = format!("{two}&features={}", file.replace("Age", &"x".repeat(101)));
        let errors = read(&wrong).err().unwrap();
        let errors: Vec<_> = errors.iter().map(|(field, _)| field).collect();
        assert_eq!(errors, ["features"]);
    }

    #[test]
    fn features_are_parsed_line_by_line() {
        let design =
            read(&GOOD.replace("dimension=8", "dimension=2&features=age,40,20%0D%0Aheight"))
                .unwrap();
        let features = design.request.features.unwrap();
        assert_eq!((features[0].center, features[0].scale), (40.0, 20.0));
        assert_eq!(
            (features[1].name.as_str(), features[1].scale),
            ("height", 1.0)
        );
    }
}
