//! Flags that several commands share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use eigenveil_client::http::{BearerToken, HttpSettings, OperatorClient, ProxySetting};
use eigenveil_shared::{
    about::StudyNotice,
    api::{CreateStudyRequest, Lambda, SparseSettings},
    enrolment::Enrolment,
    estimate::ComponentCount,
    mechanism::{Calibration, MechanismKind},
    preprocess::{BoundRows, Feature, Norm},
    study::StudyParams,
};

use crate::{
    error::{CliError, Result},
    files,
};

/// How rows are brought into the unit ball.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NormArg {
    /// Divide each row by its length; a zero row stays zero
    Normalize,
    /// Shorten rows longer than --radius to that length
    Clip,
    /// Divide by --radius; a row longer than that is sent as the zero row
    Require,
}

impl From<NormArg> for BoundRows {
    fn from(arg: NormArg) -> Self {
        match arg {
            NormArg::Normalize => Self::Normalize,
            NormArg::Clip => Self::Clip,
            NormArg::Require => Self::Require,
        }
    }
}

/// How rows are brought into the unit ball, with the radius.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct NormArgs {
    /// How rows are brought into the unit ball [default: normalize]
    #[arg(long = "bound-rows", value_enum)]
    pub(crate) norm: Option<NormArg>,
    /// Radius R of --bound-rows clip and --bound-rows require [default: 1]
    #[arg(long, value_name = "R")]
    pub(crate) radius: Option<f64>,
}

impl NormArgs {
    /// The norm with its radius; wrong usage for a radius that the norm does not use.
    pub(crate) fn norm(&self) -> Result<Norm> {
        let given = self.norm.map(BoundRows::from).unwrap_or_default();
        Ok(given.norm(self.radius, 1.0)?)
    }
}

/// The mechanism of a study or a simulation.
#[derive(Clone, Debug, Args)]
pub(crate) struct MechanismArgs {
    #[arg(long, help = format!("{} [default: double-cap]", mechanism_help()), value_parser = parse::<MechanismKind>)]
    pub(crate) mechanism: Option<MechanismKind>,
    /// How Gaussian noise is chosen: analytic (the claim holds) or as-published (the paper's formula; its true ε is
    /// shown) [default: analytic]
    #[arg(long, value_parser = parse::<Calibration>)]
    pub(crate) calibration: Option<Calibration>,
    /// Failure probability δ of one report, well below 1/n; not for double-cap, whose δ is 0 [default: 1e-6]
    #[arg(long, value_name = "D")]
    pub(crate) delta: Option<f64>,
    #[command(flatten)]
    pub(crate) norm: NormArgs,
    /// Private centring: append the constant A to each row, so that the mean is estimated and removed [default A: 1/√2]
    #[arg(long, value_name = "A", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_CENTRING_TEXT)]
    pub(crate) centring: Option<f64>,
}

/// The help of `--mechanism`: every mechanism with what it promises.
pub(crate) fn mechanism_help() -> String {
    format!("Local randomizer. {}", MechanismKind::summaries())
}

/// 1/√2, for clap.
pub(crate) const DEFAULT_CENTRING_TEXT: &str = "0.7071067811865476";

impl MechanismArgs {
    /// The frozen parameters of a study with these flags.
    pub(crate) fn freeze(
        &self,
        dimension: usize,
        epsilon: f64,
        features: Option<Vec<Feature>>,
    ) -> Result<StudyParams> {
        let study = self.study("", dimension, epsilon, features)?;
        Ok(study.params()?.into_rows()?)
    }

    /// A study design with these flags, open to everybody, without a description.
    pub(crate) fn study(
        &self,
        name: &str,
        dimension: usize,
        epsilon: f64,
        features: Option<Vec<Feature>>,
    ) -> Result<CreateStudyRequest> {
        Ok(CreateStudyRequest {
            name: name.to_owned(),
            dimension,
            features,
            norm: self.norm.norm()?,
            centring: self.centring,
            weights: None,
            mechanism: self.mechanism,
            calibration: self
                .mechanism
                .unwrap_or_default()
                .calibration(self.calibration)?,
            epsilon,
            delta: self.delta,
            default_k: ComponentCount::Auto,
            draft: false,
            enrolment: Enrolment::Open,
            about: StudyNotice::default(),
            sites: None,
            preparation: None,
        })
    }
}

/// The sparse estimator.
#[derive(Clone, Debug, Args)]
pub(crate) struct SparseArgs {
    /// Row-sparse components: Fantope projection by ADMM (Algorithm 2 of Wang & Xu) instead of PCA
    #[arg(long)]
    pub(crate) sparse: bool,
    /// Penalty λ: a number ≥ 0 in units of the second-moment matrix, auto (from the known noise), cv (cross-validation
    /// over the buckets of reports) or path (auto, and the solutions from the largest useful penalty down)
    #[arg(long, value_name = "auto|cv|path|X", default_value = "auto", value_parser = parse::<Lambda>, requires = "sparse")]
    pub(crate) lambda: Lambda,
    /// Initial ADMM step [default: chosen from the spectrum]
    #[arg(long, value_name = "X", requires = "sparse")]
    pub(crate) rho: Option<f64>,
    /// Run PCA on the selected features, which removes the shrinkage of their loadings; with no, the error is not known
    #[arg(
        long,
        value_name = "yes|no",
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "yes",
        default_missing_value = "yes",
        value_parser = clap::builder::BoolishValueParser::new(),
        hide_possible_values = true,
        requires = "sparse"
    )]
    pub(crate) refit: bool,
    /// Maximum number of iterations; if it is reached, the result says so (`converged` is false)
    #[arg(long, value_name = "N", default_value_t = SparseSettings::default().max_iterations, requires = "sparse")]
    pub(crate) max_iterations: usize,
    /// Relative duality gap at which to stop
    #[arg(long, value_name = "X", default_value_t = SparseSettings::default().tolerance, requires = "sparse")]
    pub(crate) tolerance: f64,
}

impl SparseArgs {
    pub(crate) fn settings(&self) -> Option<SparseSettings> {
        self.sparse.then_some(SparseSettings {
            lambda: self.lambda,
            rho: self.rho,
            refit: self.refit,
            max_iterations: self.max_iterations,
            tolerance: self.tolerance,
        })
    }
}

/// Address and connection settings of the server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// Address of the server
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "EIGENVEIL_SERVER",
        // The URL may contain a password.
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080"
    )]
    pub(crate) server: String,
    /// PEM file of a certificate to trust besides the system's
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_cert: Option<PathBuf>,
    /// Allow http:// to another machine; anybody on the network path can then read tokens and reports
    #[arg(long, global = true)]
    pub(crate) insecure_http: bool,
    /// Proxy to the server, or none [default: from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY; never for
    /// localhost]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) proxy: Option<String>,
}

impl ServerArgs {
    /// Connection settings with the extra root certificate, if one was given.
    pub(crate) fn settings(&self) -> Result<HttpSettings> {
        let settings = HttpSettings {
            insecure_http: self.insecure_http,
            proxy: match &self.proxy {
                Some(text) => text.parse()?,
                None => ProxySetting::default(),
            },
            ..HttpSettings::default()
        };
        match &self.ca_cert {
            None => Ok(settings),
            Some(path) => Ok(settings.add_root_certificate_pem(&files::read(path)?)?),
        }
    }
}

/// A server and the token of its operator.
#[derive(Clone, Debug, Args)]
pub(crate) struct OperatorArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// File that holds the operator's token (`DATA/operator.token` of the server); else EIGENVEIL_TOKEN
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl OperatorArgs {
    /// A client with the operator's token; wrong usage if neither the file nor the variable provides one.
    pub(crate) fn client(&self) -> Result<OperatorClient> {
        let settings = self.server.settings()?;
        let token = match &self.token_file {
            Some(path) => files::read_text(path).map_err(|error| error.context("the token file"))?,
            None => std::env::var("EIGENVEIL_TOKEN").map_err(|_| {
                CliError::usage(
                    "the operator's token is needed: set EIGENVEIL_TOKEN or give --token-file DATA/operator.token",
                )
            })?,
        };
        let token = BearerToken::new(&token)?;
        let client = OperatorClient::with_settings(&self.server.server, &token, &settings);
        Ok(client?)
    }
}

/// `auto` or a whole number.
pub(crate) fn rank(text: &str) -> Result<ComponentCount, String> {
    if text == "auto" {
        return Ok(ComponentCount::Auto);
    }
    match text.parse::<usize>() {
        Ok(k) if k > 0 => Ok(ComponentCount::Fixed(k)),
        _ => Err(format!(
            "k is {text:?}; it must be a whole number of at least 1, or auto"
        )),
    }
}

/// A clap parser for types of the shared crate.
pub(crate) fn parse<T: std::str::FromStr<Err = eigenveil_shared::Error>>(
    text: &str,
) -> Result<T, String> {
    text.parse()
        .map_err(|error: eigenveil_shared::Error| error.detail().to_owned())
}
