//! A flag that would have no effect beside the others is refused.

use std::fmt::Write as _;

use crate::harness::{Folder, refuses, run_json};

/// Commands, and under each the flags that it refuses, with words of the message.
const REFUSED: &str = "
account --sigma 5 --sensitivity 1
  --mechanism isotropic-gaussian : --mechanism has no effect
  --calibration analytic : --calibration has no effect
  --p 9 : --p has no effect
account --epsilon 1
  --sensitivity 1 : --sigma
  --p 9 : --p has no effect
  --calibration analytic : --calibration has no effect
plan --p 9 --epsilon 4 --n 1000
  --mean-length 0.5 : --centring
  --mean-squared-length 0.5 : normalize
  --bound-rows clip : --mean-squared-length
  --bound-rows clip --mean-squared-length 1.5 : at most 1
  --sites 3 : cannot be used
  --site-rows 9,8 : cannot be used
  --site-weights precision : --site-weights
  --columns x : cannot be used
plan --p 9 --epsilon 4
  --sites 3 : --sites needs --rows
  --rows 9 : --sites
  --sites 2000000 --rows 9 : takes up to 1000000
plan --pilot ESTIMATE --epsilon 4 --n 1000
  --mean-squared-length 0.5 : --mean-squared-length has no effect
  --bound-rows clip : cannot be used
  --centring --mean-length 0.5 : cannot be used
  --spectrum 0.4 : cannot be used
moment --estimate ESTIMATE
  --job 1 : cannot be used
  --timeout 9 : cannot be used
  --study x : cannot be used
  --on b : --regress
  --overwrite : --out
  --server http://127.0.0.1:9 : --server has no effect
  --token-file x : cannot be used
  --proxy none : cannot be used
  --insecure-http : cannot be used
  --ca-cert x : cannot be used
estimate --study x
  --timeout 9 : --wait
  --out FOLDER/result : --wait
  --overwrite : --wait
  --lambda auto : --sparse
  --refit=no : --sparse
  --job 1 --k 2 : cannot be used
simulate --p 6 --n 100 --k 1 --epsilon 4 --model spiked
  --inliers 0.4 : --inliers has no effect
  --inlier-noise 0.4 : --inlier-noise has no effect
  --sign-noise 0.1 : --sign-noise has no effect
  --s 2 : --model sparse
  --tolerance 1e-3 : --sparse
  --drop a : cannot be used
  --features f.csv : cannot be used
  --title x : --plot
  --radius 2 : --radius 2 is not used
  --calibration analytic : --calibration has no effect
  --spike 0 : --spike is 0; it must be a positive finite number
  --spike -3 : --spike is -3; it must be a positive finite number
simulate --p 6 --n 100 --k 1 --epsilon 4 --model haystack
  --inliers 0 : --inliers is 0; it must be above 0 and at most 1
  --inliers -1 : --inliers is -1; it must be above 0 and at most 1
simulate --p 6 --n 100 --k 1 --epsilon 4 --model plus-minus
  --spike 3 : --spike has no effect
  --sign-noise=-1 : 0 or more
simulate --p 6 --n 100 --k 1 --epsilon 4 --model wang-xu
  --spike 3 : --spike has no effect
simulate --rows ROWS --n 100 --k 1 --epsilon 4
  --spike 3 : --spike has no effect
  --p 3 : cannot be used
central pca --rows ROWS --k 1
  --calibration accounted : --calibration has no effect
  --neighbours replace : --neighbours has no effect
  --delta 1e-6 : --delta has no effect
  --inliers 0.4 : --inliers has no effect
  --s 2 : cannot be used
  --out FOLDER/scores.npy : ends in .csv
  --seed 3 : --seed has no effect
  --repeats 3 : --repeats has no effect
central pca --model haystack --p 6 --n 50 --k 1
  --keep a : cannot be used
  --spike 3 : --spike has no effect
prepare --description none.csv --out FOLDER/constants.csv
  --k 2 : cannot be used
  --mechanism double-cap : cannot be used
  --delta 1e-6 : cannot be used
  --drop a : cannot be used
  --one-hot a : cannot be used
  --person a : cannot be used
prepare --rows ROWS --k 1 --n 1000 --epsilon 4
  --out FOLDER/constants.npy : ends in .csv
audit --p 6 --epsilon 1
  --calibration as-published : --calibration has no effect
report --study x --rows ROWS --check
  --yes : cannot be used
  --no-batch : cannot be used
  --connections 2 : cannot be used
report --study x --rows ROWS
  --approve : --site
  --min-rows 3 : --site
report --study x --rows ROWS --site North
  --weight a : cannot be used
  --yes : cannot be used
  --no-batch : cannot be used
  --connections 2 : cannot be used
  --check --approve : cannot be used
report --study x --rows ROWS --give-up
  --check : cannot be used
  --resend-refused : cannot be used
  --tokens t.txt : cannot be used
  --limit-epsilon 4 : cannot be used
  --drop a : cannot be used
  --person a : cannot be used
  --proxy none : cannot be used
  --approve : cannot be used
  --server http://127.0.0.1:9 : --server has no effect
project --estimate ESTIMATE --rows ROWS
  --features NAMES : --features has no effect
  --out FOLDER/scores.npy : ends in .csv
  --axes 2,1 : --plot
demo --n 100
  --calibration analytic : --calibration has no effect
  --drop a : --rows
  --rho 1 : --sparse
";

#[test]
fn no_flag_is_accepted_and_ignored() {
    let folder = Folder::new();
    let mut text = String::from("a,b,c\n");
    for turn in 0..200 {
        let t = f64::from(turn);
        writeln!(text, "{},{},0.05", t.sin(), 0.3 * t.cos()).unwrap();
    }
    let (rows, out) = (folder.write("rows.csv", text), folder.at("demo"));
    let demo = format!("demo --n 400 --k 1 --epsilon 8 --rows {rows} --out {out}");
    run_json(&demo);
    let names = folder.write("names.txt", "a\nb\nc\n");
    let refused = REFUSED
        .replace("NAMES", &names)
        .replace("ESTIMATE", &format!("{out}/estimate.json"))
        .replace("FOLDER", &folder.at(""))
        .replace("ROWS", &rows);
    let mut mode = "";
    for line in refused.lines() {
        match line
            .strip_prefix("  ")
            .and_then(|flag| flag.split_once(" : "))
        {
            Some(flag) => drop(refuses(mode, &[flag])),
            None => mode = line,
        }
    }
    // A single run has no deviation.
    let simulate = "simulate --p 6 --n 100 --k 1 --epsilon 4 --model spiked";
    assert!(run_json(simulate)["error_sd"].is_null());
    assert!(run_json(&format!("{simulate} --repeats 2"))["error_sd"].as_f64() > Some(0.0));
}
