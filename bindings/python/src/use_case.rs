//! Use cases of the crates. A request is a JSON object of the arguments of the Python function, by name; an answer is
//! JSON, with warnings.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use eigenveil_audit::AuditSettings;
use eigenveil_central::{CentralRequest, SimulateRequest};
use eigenveil_client::Holders;
use eigenveil_estimation::{
    Cancel, Table,
    planning::{self, PlanRequest, PrepareRequest, PublicColumn, PublicRows},
};
use eigenveil_figures::{Figure, plan_chart, sweep_chart};
use eigenveil_shared::{
    preprocess::{Feature, Row},
    privacy::{self, AccountRequest},
};
use eigenveil_tables::{
    ExpectedColumns, RowTable, Settings, features, identifiers, parse_frame, parse_usable,
    read_text,
};
use numpy::{PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;
use serde::{Serialize, de::DeserializeOwned, de::value::MapDeserializer};
use serde_json::{Map, Value};

use crate::{
    error::{Failure, Result},
    estimate::{PyEstimate, array},
    rows::{frame_columns, transposed},
    wait::{run_detached, run_interruptible},
};

type Answer = (String, Vec<String>);

/// Reads a request from these arguments; an error names the argument. Requests contain no rows, so the error may quote
/// what was given.
pub(crate) fn request<T: DeserializeOwned>(arguments: &str) -> Result<T> {
    let arguments: Map<String, Value> = serde_json::from_str(arguments)?;
    let last = Cell::new(None::<String>);
    let arguments = arguments
        .into_iter()
        .inspect(|(name, _)| last.set(Some(name.clone())));
    let parsed = T::deserialize(MapDeserializer::<_, serde_json::Error>::new(arguments));
    parsed.map_err(|error| {
        let (why, name) = (error.to_string(), last.take().unwrap_or_default());
        let names_argument = why.starts_with("missing field") || why.contains(&format!("`{name}`"));
        let mut detail = why.replace('`', "");
        // Names of Rust's types mean nothing in Python.
        for (kind, words) in [
            ("usize", "a whole number from 0"),
            ("u64", "a whole number from 0"),
            ("u16", "a whole number from 0"),
            ("f64", "a number"),
            ("struct SparseSettings", "True or a dict"),
        ] {
            detail = detail.replace(&format!("expected {kind}"), &format!("expected {words}"));
        }
        Failure::input(match names_argument {
            true => detail,
            false => format!("invalid value for '{name}': {detail}"),
        })
    })
}

fn answer(answer: &impl Serialize, warnings: Vec<String>) -> Result<Answer> {
    Ok((serde_json::to_string(answer)?, warnings))
}

/// The privacy cost of reports.
#[pyfunction]
pub(crate) fn account(py: Python<'_>, arguments: String) -> PyResult<Answer> {
    run_detached(py, || {
        let request: AccountRequest = request(&arguments)?;
        answer(&privacy::account(&request)?, Vec::new())
    })
}

/// Refuses the path of a figure other than SVG, before anything is computed.
fn check_figure(plot: Option<&Path>) -> Result<()> {
    let is_svg = |path: &Path| {
        path.extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("svg"))
    };
    let not_svg = plot.filter(|path| !is_svg(path));
    not_svg.map_or(Ok(()), |path| {
        Err(Failure::input(format!(
            "plot is {}, and a figure is written as SVG; give a name that ends in .svg",
            path.display()
        )))
    })
}

fn write_figure(path: &Path, svg: &str) -> Result<()> {
    fs::write(path, svg)
        .map_err(|error| Failure::input(format!("cannot write {}: {error}", path.display())))
}

/// Makes a plan; if requested, its chart is written as SVG.
#[pyfunction]
pub(crate) fn plan(
    py: Python<'_>,
    arguments: String,
    pilot: Option<PyRef<'_, PyEstimate>>,
    plot: Option<PathBuf>,
) -> PyResult<Answer> {
    let pilot = pilot.map(|pilot| Arc::clone(&pilot.0));
    run_interruptible(py, None, move |control| {
        check_figure(plot.as_deref())?;
        let request: PlanRequest = request(&arguments)?;
        let is_stopped = || control.is_stopped();
        let (plan, warnings) =
            planning::plan(&request, pilot.as_deref(), Cancel::when(&is_stopped))?;
        if let Some(path) = plot {
            write_figure(&path, &plan_chart(&plan)?.to_svg())?;
        }
        answer(&plan, warnings)
    })
}

/// Public constants from the rows of a data frame, whose text columns may become categories; `persons` has an identifier
/// for each row.
#[pyfunction]
pub(crate) fn prepare(
    py: Python<'_>,
    arguments: String,
    names: Vec<String>,
    values: PyReadonlyArray2<'_, f64>,
    texts: Vec<(usize, Vec<String>)>,
    one_hot: Vec<String>,
    persons: Option<Vec<String>>,
) -> PyResult<Answer> {
    let columns = frame_columns(&values, texts);
    run_interruptible(py, None, move |control| {
        let request: PrepareRequest = request(&arguments)?;
        let settings = Settings {
            one_hot: Some(one_hot),
            public_rows: true,
            ..Settings::default()
        };
        let mut table = parse_frame(Some(names), columns, &settings, None)?;
        table.check_usable(true)?;
        table.note_identifiers(true);
        let holders = match &persons {
            Some(labels) => {
                let persons = identifiers(labels);
                let persons =
                    persons.map_err(|error| Failure::from_table_error(&error, "wrong-persons"));
                Holders::persons(persons?)
            }
            None => Holders::Rows(table.len()),
        };
        let names = table.names().unwrap_or_default().iter();
        let columns = names.enumerate().map(|(index, name)| PublicColumn {
            name: name.clone(),
            category_of: table
                .is_category(index)
                .then(|| table.file_columns()[index]),
        });
        let columns: Vec<PublicColumn> = columns.collect();
        let rows = PublicRows {
            table: Table {
                len: table.len(),
                columns: table.dimension(),
                row: &|index| table.row(index),
            },
            columns: &columns,
            persons: holders.rows_of_persons(),
        };
        let is_stopped = || control.is_stopped();
        let cancel = Cancel::when(&is_stopped);
        let prepared = planning::prepare(&request, rows, &mut |_, _| (), cancel)?;
        let notes = table.notes().iter().cloned();
        answer(&prepared, notes.collect())
    })
}

/// An empirical lower bound on ε.
#[pyfunction]
pub(crate) fn audit(py: Python<'_>, arguments: String) -> PyResult<Answer> {
    run_interruptible(py, None, move |control| {
        let settings: AuditSettings = request(&arguments)?;
        let is_stopped = || control.is_stopped();
        let progress = |_: u64| Cancel::when(&is_stopped).check();
        let (report, warnings) = eigenveil_audit::run(&settings, &progress)?;
        answer(&report, warnings)
    })
}

/// Simulates studies whose true subspace is known. A table is given by its file, its settings as JSON, and a features
/// file; if requested, the figure of the sweep is written as SVG.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    arguments: String,
    table: Option<(PathBuf, String, Option<PathBuf>)>,
    title: Option<String>,
    plot: Option<PathBuf>,
) -> PyResult<Answer> {
    run_interruptible(py, None, move |control| {
        check_figure(plot.as_deref())?;
        let mut request: SimulateRequest = request(&arguments)?;
        let table = table
            .map(|(path, settings, features)| read_table(&path, &settings, features.as_deref()))
            .transpose()?;
        let (mut rows, mut warnings) = (None::<Vec<Row>>, Vec::<String>::new());
        if let Some((table, features)) = table {
            warnings.extend(table.notes().iter().cloned());
            rows = Some((0..table.len()).map(|index| table.row(index)).collect());
            request.features = features;
        }
        let is_stopped = || control.is_stopped();
        let (sweep, budget_warnings) = eigenveil_central::simulate(
            &request,
            rows.as_deref(),
            &mut |_| (),
            Cancel::when(&is_stopped),
        )?;
        warnings.extend(budget_warnings);
        if let Some(path) = plot {
            let chart = sweep_chart(&sweep.rows, title.as_deref(), request.sparse.is_some());
            write_figure(&path, &chart.to_svg())?;
        }
        answer(&sweep, warnings)
    })
}

/// Runs a baseline of a trusted curator on these rows; returns the loadings (k × p) and the answer.
#[pyfunction]
pub(crate) fn central<'py>(
    py: Python<'py>,
    arguments: String,
    table: PyReadonlyArray2<'py, f64>,
) -> PyResult<(Bound<'py, PyArray2<f64>>, String)> {
    let table = transposed(&table);
    let (loadings, answer) = run_interruptible(py, None, move |control| {
        let request: CentralRequest = request(&arguments)?;
        let is_stopped = || control.is_stopped();
        let row = |index: usize| Row::new(table.column(index).iter().copied().collect());
        let rows = Table {
            len: table.ncols(),
            columns: table.nrows(),
            row: &row,
        };
        let (answer, loadings) = eigenveil_central::fit(&request, rows, Cancel::when(&is_stopped))?;
        Ok((loadings.transpose(), serde_json::to_string(&answer)?))
    })?;
    Ok((array(py, &loadings), answer))
}

/// Reads a table, and the public constants of a features file.
fn read_table(
    path: &Path,
    settings: &str,
    constants: Option<&Path>,
) -> Result<(RowTable, Option<Vec<Feature>>)> {
    let bytes = |path: &Path| {
        let why = match path.is_dir() {
            true => "it is a folder; name a file, such as one of its part files".to_owned(),
            false => match fs::read(path) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error.to_string(),
            },
        };
        Err(Failure::input(format!(
            "cannot read {}: {why}",
            path.display()
        )))
    };
    let mut settings: Settings = request(settings)?;
    if let Some(path) = constants {
        let text = read_text(&bytes(path)?);
        let text =
            text.ok_or_else(|| Failure::input(format!("{} is not text in UTF-8", path.display())))?;
        settings.features = Some(features::parse(path, &text)?);
    }
    let known = settings.features.as_deref();
    let expected = known.map(ExpectedColumns::features_file);
    let table = parse_usable(path, &bytes(path)?, &settings, expected.as_ref())?;
    Ok((table, settings.features))
}
