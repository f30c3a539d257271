//! Our side of `benches/rivals.py`, which writes the instances, runs the rivals and starts this program in the same
//! run. Matrices are raw little-endian doubles, column by column; the output is one line of JSON.
//!
//! ```text
//! fantope MATRIX P K LAMBDA TOLERANCE REPEATS     the sparse solver, certificate included
//! leading MATRIX P K REPEATS                      the k leading pairs, with the proof and without, and all of them
//! rows DATA N P K LAMBDA OUT REPEATS              moment of N rows, relaxed, refitted; loadings to OUT
//! ```

use std::error::Error;

use eigenveil_estimation::{
    Cancel,
    fantope::{AdmmSettings, Solution, refit_within_blocks, solve},
    linalg::{GramSum, leading_pairs, packed_to_dense, symmetric_eigen, top_k},
};
use nalgebra::DMatrix;
use serde_json::{Value, json};

mod clock;
use clock::{median, timed};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn read(path: &str, rows: usize, columns: usize) -> Outcome<DMatrix<f64>> {
    let bytes = std::fs::read(path)?;
    let (words, rest) = bytes.as_chunks::<8>();
    if words.len() != rows * columns || !rest.is_empty() {
        return Err(format!("{path} does not hold {rows} × {columns} doubles").into());
    }
    let numbers = words.iter().map(|&word| f64::from_le_bytes(word));
    Ok(DMatrix::from_iterator(rows, columns, numbers))
}

fn relaxed(moment: &DMatrix<f64>, k: usize, lambda: f64, tolerance: f64) -> Outcome<Solution> {
    let settings = AdmmSettings {
        tolerance,
        ..AdmmSettings::default()
    };
    let on = Cancel::NEVER;
    Ok(solve(moment, k, lambda, &settings, on)?)
}

/// From rows of data to the relaxed solution and the loadings refitted within its blocks.
fn from_rows(data: &DMatrix<f64>, k: usize, lambda: f64) -> Outcome<(Solution, DMatrix<f64>)> {
    let (p, n) = data.shape();
    let mut sum = GramSum::<f64>::new(p);
    for row in data.as_slice().chunks(p) {
        sum.add(row, 1.0 / n as f64);
    }
    let moment = packed_to_dense(&sum.finish());
    let start = relaxed(&moment, k, lambda, 1e-4)?;
    let loadings = refit_within_blocks(&moment, &start)?;
    Ok((start, loadings))
}

/// Times, and by how much the vectors leave the span of the exact ones; without the proof to residuals of 1e-14, as
/// `eigsh` has them for `tol = 0`, and of 1e-5.
fn leading(matrix: &DMatrix<f64>, k: usize, repeats: usize) -> Outcome<Value> {
    let (full, all) = timed(1, || symmetric_eigen(matrix));
    let exact = all?.vectors.columns(0, k).into_owned();
    let line = |times: &[f64], vectors: &DMatrix<f64>| {
        let outside = vectors - &exact * exact.tr_mul(vectors);
        json!({"ms": median(times), "error": outside.norm()})
    };
    let (times, proved) = timed(repeats, || top_k(matrix, k));
    let proved = line(&times, &proved?.vectors);
    let unproved = |accuracy| -> Outcome<Value> {
        let search = || leading_pairs(matrix, k, 1, accuracy, matrix.nrows() / 2);
        let (times, found) = timed(repeats, search);
        Ok(line(&times, &found?.ok_or("did not converge")?.vectors))
    };
    Ok(json!({
        "proved": proved, "to 1e-14": unproved(1e-14)?, "to 1e-5": unproved(1e-5)?,
        "full": {"ms": median(&full), "error": 0.0},
    }))
}

fn run(arguments: &[&str]) -> Outcome<Value> {
    match arguments {
        ["fantope", matrix, p, k, lambda, tolerance, repeats] => {
            let moment = read(matrix, p.parse()?, p.parse()?)?;
            let (k, lambda, tolerance) = (k.parse()?, lambda.parse()?, tolerance.parse()?);
            let (times, solution) =
                timed(repeats.parse()?, || relaxed(&moment, k, lambda, tolerance));
            let solution = solution?;
            Ok(json!({
                "ms": median(&times), "iterations": solution.iterations,
                "gap": solution.relative_gap, "objective": solution.objective,
                "rows": solution.support.len(), "converged": solution.converged(),
            }))
        }
        ["leading", matrix, p, k, repeats] => {
            let matrix = read(matrix, p.parse()?, p.parse()?)?;
            leading(&matrix, k.parse()?, repeats.parse()?)
        }
        ["rows", data, n, p, k, lambda, out, repeats] => {
            let data = read(data, p.parse()?, n.parse()?)?;
            let (k, lambda) = (k.parse()?, lambda.parse()?);
            let (times, found) = timed(repeats.parse()?, || from_rows(&data, k, lambda));
            let (start, loadings) = found?;
            let bytes = loadings.iter().flat_map(|x| x.to_le_bytes());
            std::fs::write(out, bytes.collect::<Vec<u8>>())?;
            Ok(json!({
                "ms": median(&times), "rows": start.support.len(), "gap": start.relative_gap,
            }))
        }
        _ => Err("started by benches/rivals.py; see the head of this file".into()),
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    words.retain(|word| *word != "--bench");
    // `cargo bench` without arguments: nothing to do.
    if words.is_empty() {
        println!("this one is started by benches/rivals.py");
        return Ok(());
    }
    println!("{}", run(&words)?);
    Ok(())
}
