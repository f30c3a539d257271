//! Layout of preparations: parameters of version 4. Their reports are those of single rows, with a payload of their own.

use serde::{Deserialize, Serialize};

use super::{Halves, check_canonical, malformed_params, params_version, read_params, write};
use crate::{
    error::{Result, error},
    preparation::{
        ColumnKind, NumberRange, PARAMS_VERSION_PREPARATION, PreparationColumn, PreparationParams,
    },
};

#[derive(Serialize, Deserialize)]
struct WirePreparation {
    version: u16,
    epsilon: f64,
    after: Option<Halves>,
    columns: Vec<WireColumn>,
}

/// A yes-no column has neither a range nor categories.
#[derive(Serialize, Deserialize)]
struct WireColumn {
    name: String,
    may_be_missing: bool,
    /// A number column's range, and the interval of a second round.
    range: Option<WireRange>,
    categories: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct WireRange {
    lo: f64,
    hi: f64,
    within: Option<[f64; 2]>,
}

impl WireColumn {
    fn new(column: &PreparationColumn) -> Self {
        let (range, categories) = match &column.kind {
            ColumnKind::Number(NumberRange { lo, hi, within }) => {
                let (lo, hi, within) = (*lo, *hi, *within);
                (Some(WireRange { lo, hi, within }), Vec::new())
            }
            ColumnKind::YesNo => (None, Vec::new()),
            ColumnKind::Categories(texts) => (None, texts.clone()),
        };
        Self {
            name: column.name.clone(),
            may_be_missing: column.may_be_missing,
            range,
            categories,
        }
    }

    fn read(self) -> Result<PreparationColumn> {
        let kind = match (self.range, self.categories.is_empty()) {
            (Some(WireRange { lo, hi, within }), true) => {
                ColumnKind::Number(NumberRange { lo, hi, within })
            }
            (None, true) => ColumnKind::YesNo,
            (None, false) => ColumnKind::Categories(self.categories),
            (Some(_), false) => {
                return Err(malformed_params(
                    "a column has a range and categories".to_owned(),
                ));
            }
        };
        Ok(PreparationColumn {
            name: self.name,
            kind,
            may_be_missing: self.may_be_missing,
        })
    }
}

/// The canonical bytes of a preparation.
pub(crate) fn encode_preparation_params(params: &PreparationParams) -> Vec<u8> {
    let wire = WirePreparation {
        version: PARAMS_VERSION_PREPARATION,
        epsilon: params.budget().epsilon(),
        after: params.after().map(Halves::from),
        columns: params.columns().iter().map(WireColumn::new).collect(),
    };
    let mut bytes = Vec::new();
    write(&mut bytes, &wire);
    bytes
}

/// Reads canonical bytes of a preparation; the result has been checked as a device must.
pub(crate) fn decode_preparation_params(bytes: &[u8]) -> Result<PreparationParams> {
    let version = params_version(bytes)?;
    if version != PARAMS_VERSION_PREPARATION {
        return Err(error!(
            UnsupportedVersion,
            "the study parameters have layout version {version}, which is not that of a preparation ({PARAMS_VERSION_PREPARATION}); later versions need a newer program"
        ));
    }
    let wire: WirePreparation = read_params(bytes)?;
    let columns = wire.columns.into_iter().map(WireColumn::read);
    let params = PreparationParams::freeze(
        columns.collect::<Result<_>>()?,
        wire.epsilon,
        wire.after.map(Into::into),
    )?;
    check_canonical(bytes, &encode_preparation_params(&params))?;
    Ok(params)
}
