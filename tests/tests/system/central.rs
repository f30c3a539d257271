//! `eigenveil central` as a process.

use eigenveil_central::ALGORITHMS;

use crate::program::{has_keys, refused, run, run_json};

/// The keys that every algorithm prints.
const KEYS: [&str; 10] = [
    "algorithm",
    "epsilon",
    "delta",
    "true_epsilon",
    "neighbours",
    "calibration",
    "error",
    "captured_variance",
    "seconds",
    "algorithm_seconds",
];

#[test]
fn every_listed_algorithm_runs_and_prints_the_agreed_keys() {
    let listed = run_json(&["central", "list", "--json"]);
    let listed = listed["algorithms"].as_array().unwrap();
    assert_eq!(listed.len(), ALGORITHMS.len());
    for entry in listed {
        let name = entry["algorithm"].as_str().unwrap();
        for key in ["source", "description", "guarantee"] {
            assert!(!entry[key].as_str().unwrap().is_empty(), "{name}");
        }
        let source = ["--model", "spiked", "--p", "8", "--n", "20000", "--k", "2"];
        let plain = [&["central", name, "--json", "--seed", "1"], &source[..]].concat();
        let result = run_json(&plain);
        has_keys(&result, &KEYS);
        assert_eq!(result["algorithm"], name);
        for key in ["epsilon", "true_epsilon", "neighbours", "calibration"] {
            assert!(result[key].is_null(), "{name}: {result}");
        }
        let error = result["error"].as_f64().unwrap();
        assert!(error < 0.5, "{name}: {error}");
        for calibration in entry["calibrations"].as_array().unwrap() {
            for neighbours in entry["neighbours"].as_array().unwrap() {
                let mut private = plain.clone();
                private.extend([
                    "--epsilon",
                    "4",
                    "--calibration",
                    calibration.as_str().unwrap(),
                ]);
                private.extend(["--neighbours", neighbours.as_str().unwrap()]);
                let result = run_json(&private);
                has_keys(&result, &KEYS);
                assert_eq!(&result["calibration"], calibration);
                assert_eq!(&result["neighbours"], neighbours);
                if calibration == "accounted" {
                    let real = result["true_epsilon"].as_f64().unwrap();
                    assert!(real <= 4.0 && result["claim_holds"] == true, "{result}");
                }
            }
        }
    }
    traces();
    let said = run(&["central", "list"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    for card in ALGORITHMS {
        assert!(said.contains(card.name) && said.contains(card.source));
        for parameter in card.parameters {
            assert!(said.contains(&format!("--{}", parameter.name)), "{said}");
        }
    }
}

/// A trace of what has iterations ends at the error that is reported; it does not change the answer.
fn traces() {
    let model = ["--model", "haystack", "--p", "8", "--n", "500", "--k", "2"];
    for card in ALGORITHMS {
        let plain = [&["central", card.name, "--seed", "1"], &model[..]].concat();
        let traced = [&plain[..], &["--trace"]].concat();
        if !card.traced {
            refused(&run(&traced), 2, &["no iterations", "--trace"]);
            continue;
        }
        let without = run_json(&[&plain[..], &["--json"]].concat());
        assert!(without.get("trace").is_none());
        let with = run_json(&[&traced[..], &["--json"]].concat());
        assert_eq!(without["error"], with["error"], "{}", card.name);
        let points = with["trace"].as_array().unwrap();
        let last = points.last().unwrap();
        for key in ["iteration", "passes", "error", "objective"] {
            assert!(last.get(key).is_some(), "{last}");
        }
        assert!(last["error"].as_f64().unwrap() < 3.0 && last["passes"].as_f64().unwrap() > 0.0);
        let text = String::from_utf8(run(&traced).stdout).unwrap();
        assert!(text.contains("first run; not private"), "{text}");
    }
}

#[test]
fn central_reads_rows_writes_loadings_and_repeats_with_a_seed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, out) = (path("rows.csv"), path("components.csv"));
    let mut rows = String::from("a,b,c\n");
    for turn in 0..400 {
        let t = f64::from(turn);
        rows.push_str(&format!("{},{},{}\n", t.sin(), 0.3 * t.cos(), 0.05));
    }
    std::fs::write(&csv, rows).unwrap();
    let base = [
        "central",
        "analyze-gauss",
        "--rows",
        &csv,
        "--k",
        "1",
        "--epsilon",
        "4",
    ];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    let of = |arguments: &[&str]| {
        let mut result = run_json(arguments);
        for key in ["seconds", "algorithm_seconds"] {
            assert!(result.as_object_mut().unwrap().remove(key).is_some());
        }
        result
    };
    let seeded = with(&["--json", "--seed", "3", "--repeats", "2"]);
    assert_eq!(of(&seeded), of(&seeded));
    assert_ne!(of(&with(&["--json"])), of(&with(&["--json"])));
    let result = of(&[&base[..], &["--json", "--out", &out]].concat());
    assert_eq!((&result["n"], &result["p"]), (&400.into(), &3.into()));
    let written = std::fs::read_to_string(&out).unwrap();
    assert_eq!(written.lines().count(), 4);
    assert!(written.starts_with("feature,component1\n0,"), "{written}");
    let resampled = of(&with(&["--json", "--n", "1000"]));
    assert_eq!(resampled["n"], 1000);
    // No guarantee is null, and said.
    let wishart = run(&[
        "central",
        "wishart",
        "--rows",
        &csv,
        "--k",
        "1",
        "--epsilon",
        "1",
        "--calibration",
        "as-published",
    ]);
    let said = String::from_utf8_lossy(&wishart.stdout).into_owned();
    assert!(
        said.contains("nothing at delta") && said.contains("0.283"),
        "{said}"
    );

    let long = path("long.csv");
    std::fs::write(&long, "a,b\n0.5,0.1\n9.25,0\n").unwrap();
    let nan = path("nan.csv");
    std::fs::write(&nan, "a,b\n0.5,0.1\nNaN,0\n").unwrap();
    let file = |name: &'static str, more: &[&'static str]| -> Vec<String> {
        [
            &["central", "analyze-gauss", "--k", "1", "--rows"][..],
            &[name],
            more,
        ]
        .concat()
        .iter()
        .map(|word| match *word {
            "LONG" => long.clone(),
            "NAN" => nan.clone(),
            word => word.to_owned(),
        })
        .collect()
    };
    let model = ["--model", "spiked", "--p", "4"];
    for (wrong, says) in [
        (file("LONG", &["--norm", "require"]), "row 2"),
        (
            file("NAN", &[]),
            "line 3, column 1 (a): the value is missing",
        ),
        (file("LONG", &["--epsilon", "0"]), "epsilon is 0"),
        (file("LONG", &["--epsilon", "nan"]), "epsilon is NaN"),
        (file("LONG", &["--epsilon", "17"]), "at most 16"),
        (file("LONG", &["--delta", "1e-6"]), "--epsilon"),
        (
            file("LONG", &["--epsilon", "1", "--delta", "0"]),
            "delta is 0",
        ),
        (file("LONG", &["--batch", "5"]), "no parameter batch"),
        (file("LONG", &["--repeats", "0"]), "--repeats"),
        (file("LONG", &["--neighbours", "add"]), "replace"),
        (
            [
                &["central", "analyze-gauss", "--n", "10", "--k", "5"][..],
                &model,
            ]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect(),
            "k = 5",
        ),
        (
            vec![
                "central".into(),
                "analyse-gauss".into(),
                "--k".into(),
                "1".into(),
            ],
            "analyze-gauss",
        ),
        (vec!["central".into()], "ALGORITHM"),
    ] {
        eprintln!("{wrong:?}");
        let wrong: Vec<&str> = wrong.iter().map(String::as_str).collect();
        let output = run(&wrong);
        refused(&output, 2, &[says]);
        // Never a value of a row.
        assert!(!String::from_utf8_lossy(&output.stderr).contains("9.25"));
    }
    // A matrix of 137 GB.
    let wide = folder.path().join("wide.libsvm");
    std::fs::write(&wide, "1 131072:1\n").unwrap();
    let wide = wide.to_str().unwrap();
    let much = run(&["central", "analyze-gauss", "--rows", wide, "--k", "2"]);
    refused(&much, 2, &["131072 columns", "at most 20000"]);
    // Products with the rows need none.
    let found = run_json(&["central", "pca", "--rows", wide, "--k", "2", "--json"]);
    assert!((found["captured_variance"].as_f64().unwrap() - 1.0).abs() < 1e-12);
    // Fewer rows than a batch.
    let few = run(&[
        "central",
        "minibatch-oja",
        "--rows",
        &csv,
        "--k",
        "1",
        "--batch",
        "1000",
    ]);
    refused(&few, 2, &["1000", "400"]);
}
