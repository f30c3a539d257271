//! A flag that would have no effect beside the others is refused.

use std::fmt::Write as _;

use crate::harness::{Folder, refuses, run_json};

#[test]
fn no_flag_is_accepted_and_ignored() {
    let folder = Folder::new();
    let mut text = String::from("a,b,c\n");
    for turn in 0..200 {
        let t = f64::from(turn);
        writeln!(text, "{},{},0.05", t.sin(), 0.3 * t.cos()).unwrap();
    }
    let (rows, out) = (folder.write("rows.csv", text), folder.at("demo"));
    run_json(&format!(
        "demo --n 400 --k 1 --epsilon 8 --rows {rows} --out {out}"
    ));
    let estimate = format!("{out}/estimate.json");
    let [scores, constants] = ["scores.npy", "constants.csv"].map(|name| folder.at(name));
    let out = format!("--out {scores}");
    let model = "--p 6 --n 100 --k 1 --epsilon 4 --model";
    let modes: [(String, &[(&str, &str)]); 16] = [
        (
            "account --sigma 5 --sensitivity 1".to_owned(),
            &[
                (
                    "--mechanism isotropic-gaussian",
                    "--mechanism has no effect",
                ),
                ("--calibration analytic", "--calibration has no effect"),
                ("--p 9", "--p has no effect"),
            ],
        ),
        (
            "account --epsilon 1".to_owned(),
            &[
                ("--sensitivity 1", "--sigma"),
                ("--p 9", "--p has no effect"),
                ("--calibration as-published", "no calibration as-published"),
            ],
        ),
        (
            "audit --p 2 --epsilon 1".to_owned(),
            &[
                ("--calibration as-published", "no calibration as-published"),
                ("--delta 1e-6", "always 0"),
            ],
        ),
        (
            "plan --p 9 --k 1 --spectrum 0.4 --epsilon 4 --n 1000".to_owned(),
            &[
                ("--mean-squared-length 0.5", "normalize"),
                ("--mean-length 0.5", "--centring"),
                ("--mechanism double-cap --delta 1e-6", "always 0"),
            ],
        ),
        (
            format!("plan --pilot {estimate} --epsilon 4 --n 1000"),
            &[
                (
                    "--mean-squared-length 0.5",
                    "--mean-squared-length has no effect",
                ),
                ("--bound-rows clip", "cannot be used"),
                ("--centring --mean-length 0.5", "cannot be used"),
                ("--spectrum 0.4", "cannot be used"),
            ],
        ),
        (
            format!("moment --estimate {estimate}"),
            &[
                ("--job 1", "cannot be used"),
                ("--timeout 9", "cannot be used"),
                ("--study x", "cannot be used"),
                ("--on b", "--regress"),
                ("--overwrite", "--out"),
            ],
        ),
        (
            "estimate --study x".to_owned(),
            &[
                ("--timeout 9", "--wait"),
                ("--lambda auto", "--sparse"),
                ("--refit=no", "--sparse"),
                ("--job 1 --k 2", "cannot be used"),
            ],
        ),
        (
            format!("simulate {model} spiked"),
            &[
                ("--inliers 0.4", "--inliers has no effect"),
                ("--inlier-noise 0.4", "--inlier-noise has no effect"),
                ("--sign-noise 0.1", "--sign-noise has no effect"),
                ("--s 2", "--model sparse"),
                ("--tolerance 1e-3", "--sparse"),
                ("--drop a", "cannot be used"),
                ("--features f.csv", "cannot be used"),
                ("--title x", "--plot"),
                ("--radius 2", "--radius 2 is not used"),
            ],
        ),
        (
            format!("simulate {model} plus-minus"),
            &[
                ("--spike 3", "--spike has no effect"),
                ("--sign-noise=-1", "0 or more"),
            ],
        ),
        (
            format!("simulate {model} wang-xu"),
            &[("--spike 3", "--spike has no effect")],
        ),
        (
            format!("simulate --rows {rows} --n 100 --k 1 --epsilon 4"),
            &[
                ("--spike 3", "--spike has no effect"),
                ("--p 3", "cannot be used"),
            ],
        ),
        (
            format!("central pca --rows {rows} --k 1"),
            &[
                ("--calibration accounted", "--calibration has no effect"),
                ("--neighbours replace", "--neighbours has no effect"),
                ("--delta 1e-6", "--delta has no effect"),
                ("--inliers 0.4", "--inliers has no effect"),
                ("--batch 5", "no parameter batch"),
                ("--s 2", "cannot be used"),
                (&out, "ends in .csv"),
            ],
        ),
        (
            "central pca --model haystack --p 6 --n 50 --k 1".to_owned(),
            &[
                ("--keep a", "cannot be used"),
                ("--spike 3", "--spike has no effect"),
            ],
        ),
        (
            format!("prepare --description none.csv --out {constants}"),
            &[
                ("--k 2", "cannot be used"),
                ("--mechanism double-cap", "cannot be used"),
                ("--delta 1e-6", "cannot be used"),
                ("--drop a", "cannot be used"),
                ("--one-hot a", "cannot be used"),
            ],
        ),
        (
            format!("project --estimate {estimate} --rows {rows}"),
            &[(&out, "ends in .csv"), ("--axes 2,1", "--plot")],
        ),
        (
            "demo --n 100".to_owned(),
            &[("--drop a", "--rows"), ("--rho 1", "--sparse")],
        ),
    ];
    for (mode, flags) in &modes {
        refuses(mode, flags);
    }
    // A single run has no deviation.
    let simulate = format!("simulate {model} spiked");
    assert!(run_json(&simulate)["error_sd"].is_null());
    assert!(run_json(&format!("{simulate} --repeats 2"))["error_sd"].as_f64() > Some(0.0));
}
