//! The table of parameters against the algorithms that have them.

use eigenveil_central::{
    ALGORITHMS, AlgorithmInfo,
    CentralCalibration::Accounted,
    Fit, Neighbours, Options, Privacy, Request, Rows,
    parameter::{ALL, GROUP_ROWS, GROUPS, Kind, Parameter, TAIL_SCALE, Value, ZETA},
};
use eigenveil_shared::ErrorCode;

use crate::tables::{has_constants, private, rows_enough_for, seeded};

fn fit(info: &'static AlgorithmInfo, options: &Options, rows: &Rows) -> Fit {
    let privacy = if has_constants(info) {
        private(12.0, 1e-2, Neighbours::ZeroOut, Accounted)
    } else {
        Privacy::None
    };
    let method = info.build(options).unwrap();
    let fit = method.fit(rows, &Request::new(2, privacy), &mut seeded(4));
    fit.unwrap_or_else(|error| panic!("{} {options:?}: {error}", info.name))
}

/// A value other than the default.
fn other(info: &AlgorithmInfo, parameter: &Parameter) -> Value {
    match (parameter.name, parameter.kind) {
        ("batch", _) if has_constants(info) => Value::Count(3_000),
        ("batch", _) => Value::Count(90),
        ("block-size", _) => Value::Count(3),
        ("support", _) => Value::Count(2),
        ("group-rows", _) => Value::Count(25),
        ("lambda", _) => Value::Number(1e-6),
        ("groups", _) => Value::Number(9.0),
        (_, Kind::Count) => Value::Count(7),
        (_, Kind::Number) => Value::Number(0.37),
        (_, Kind::Switch) => Value::Set,
    }
}

/// A listed parameter that the algorithm does not read would change nothing.
#[test]
fn every_listed_parameter_reaches_its_algorithm() {
    for info in ALGORITHMS {
        let rows = rows_enough_for(info);
        let default = fit(info, &Options::default(), &rows);
        for parameter in info.parameters {
            let options = Options::default().with(*parameter, other(info, parameter));
            let set = fit(info, &options, &rows);
            let other = set.subspace != default.subspace || set.diagnostics != default.diagnostics;
            assert!(other, "{} --{}", info.name, parameter.name);
        }
    }
}

/// Unlisted parameters and values out of limits are rejected; the error names the value, the limits and the remedy.
#[test]
fn unlisted_parameters_and_bad_values_are_rejected() {
    for info in ALGORITHMS {
        let name = info.name;
        let refused = |parameter: &Parameter, value: Value, says: &str| {
            let built = info.build(&Options::default().with(*parameter, value));
            let error = built
                .err()
                .unwrap_or_else(|| panic!("{name} takes {parameter:?} {value}"));
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
            assert!(error.detail().contains(says), "{name}: {error}");
        };
        for parameter in ALL {
            let mut parameters = info.parameters.iter();
            let Some(parameters) = parameters.find(|parameters| parameters.name == parameter.name)
            else {
                refused(parameter, other(info, parameter), "leave it out (it has ");
                continue;
            };
            // As in the table, except for its default.
            let without = Parameter {
                default: None,
                ..*parameters
            };
            assert_eq!(without, *parameter);
            match parameter.kind {
                Kind::Count => {
                    refused(parameters, Value::Count(0), " is 0; it must be at least ");
                }
                Kind::Number => {
                    refused(parameters, Value::Number(-1.0), " is -1; it must be a");
                    refused(parameters, Value::Number(f64::NAN), " is NaN; it must be a");
                    refused(
                        parameters,
                        Value::Number(f64::INFINITY),
                        " is inf; it must be a",
                    );
                }
                Kind::Switch => {}
            }
            if let Some(default) = parameters.default {
                parameters.check(default).unwrap();
            }
        }
    }
}

/// Beyond their limits, some of which are excluded.
#[test]
fn limits_of_the_constants_are_their_own() {
    for (parameter, value) in [(ZETA, 0.0), (TAIL_SCALE, 0.0), (GROUPS, 0.5)] {
        assert!(parameter.check(value).is_err(), "{parameter:?}");
    }
    assert!(GROUP_ROWS.check(1).is_err());
}

#[test]
fn every_parameter_belongs_to_an_algorithm() {
    for (at, parameter) in ALL.iter().enumerate() {
        let mut parameters = ALGORITHMS.iter().flat_map(|info| info.parameters);
        assert!(
            parameters.any(|parameters| parameters.name == parameter.name),
            "{parameter:?}"
        );
        assert!(ALL[..at].iter().all(|other| other.name != parameter.name));
    }
}
