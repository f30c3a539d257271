//! What scripts rely on: keys, exit codes, one line on standard output.

use std::path::Path;

use crate::program::{ServerProcess, has_keys, run, run_json};

#[test]
fn demo_prints_the_agreed_keys_and_writes_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("result");
    let result = run_json(&[
        "demo",
        "--json",
        "--n",
        "3000",
        "--k",
        "1",
        "--out",
        out.to_str().unwrap(),
    ]);
    has_keys(
        &result,
        &[
            "n",
            "p",
            "k",
            "mechanism",
            "epsilon",
            "delta",
            "error",
            "nonprivate_captured",
            "captured",
            "payload_bytes",
            "bytes_per_report",
            "reports_per_second",
            "components_above_floor",
            "out",
        ],
    );
    assert_eq!(result["n"], 3000);
    assert_eq!(result["mechanism"], "double-cap");
    assert_eq!(
        (&result["epsilon"], &result["delta"]),
        (&4.0.into(), &0.0.into())
    );
    assert_eq!(result["payload_bytes"], 16);
    assert_eq!(result["bytes_per_report"], 58 + 16);
    let (captured, best) = (
        result["captured"].as_f64().unwrap(),
        result["nonprivate_captured"].as_f64().unwrap(),
    );
    // The first component holds two thirds of the energy and stands 20 times above the noise at n = 3,000.
    assert!(
        captured > 0.9 * best && captured <= best + 1e-9,
        "{captured} of {best}"
    );
    for (file, holds) in [
        ("estimate.json", "\"components\""),
        ("scree.svg", "hidden by the noise"),
        ("summary.csv", "alignment_se"),
        ("features.txt", "pixel_7_7"),
        ("alignment.svg", "How far to trust"),
        ("report.html", "non-private"),
    ] {
        let text = std::fs::read_to_string(out.join(file)).unwrap();
        assert!(text.contains(holds), "{file} does not hold {holds:?}");
        for outside in ["src=\"http", "href=\"http", "<script", "NaN", "Infinity"] {
            assert!(!text.contains(outside), "{file} holds {outside:?}");
        }
    }
}

#[test]
fn demo_takes_own_rows_and_refuses_bad_ones() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows.csv");
    let mut text = String::from("alpha,beta,gamma\n");
    for i in 0..50 {
        text.push_str(&format!("{},{},1\n", 10 + i % 7, i % 3));
    }
    std::fs::write(&rows, &text).unwrap();
    let out = folder.path().join("result");
    let arguments = |k: &'static str| {
        [
            "demo",
            "--json",
            "--n",
            "500",
            "--k",
            k,
            "--rows",
            rows.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ]
        .map(str::to_owned)
    };
    let result = run_json(&arguments("1").each_ref().map(String::as_str));
    assert_eq!(result["p"], 3);
    assert!(
        std::fs::read_to_string(out.join("report.html"))
            .unwrap()
            .contains("gamma")
    );
    let refused = run(&arguments("4").each_ref().map(String::as_str));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("k"));
    std::fs::write(&rows, "1,2,3\n4,inf,6\n").unwrap();
    let refused = run(&arguments("1").each_ref().map(String::as_str));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("rows.csv: row 2, column 2: the value is infinite"),
        "{said}"
    );
}

#[test]
fn the_whole_path_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let server = ServerProcess::start(&folder.path().join("data"));
    let (features, rows) = (at("features.csv"), at("rows.csv"));
    std::fs::write(
        &features,
        "name,center,scale\nheight,170,10\nweight,70,15\nage,40,20\n",
    )
    .unwrap();
    let mut text = String::from("height,weight,age\n");
    for i in 0..4000 {
        let tall = f64::from(i % 41) - 20.0;
        text.push_str(&format!(
            "{},{},{}\n",
            170.0 + tall,
            70.0 + 1.4 * tall,
            40 + (i * 7) % 11
        ));
    }
    std::fs::write(&rows, text).unwrap();
    let study = server.cli_json(&[
        "study",
        "create",
        "--json",
        "--name",
        "bodies",
        "--k",
        "1",
        "--epsilon",
        "8",
        "--features",
        &features,
        "--norm",
        "clip",
        "--radius",
        "3",
    ]);
    has_keys(
        &study,
        &[
            "id",
            "fingerprint",
            "state",
            "params",
            "canonical",
            "reports_accepted",
            "privacy",
        ],
    );
    assert_eq!(study["state"], "open");
    let id = study["id"].as_str().unwrap();

    let first = server.cli_json(&["report", "--json", "--study", id, "--rows", &rows]);
    assert_eq!(
        (&first["accepted"], &first["acknowledged"]),
        (&4000.into(), &4000.into())
    );
    // Running it again sends nothing: every row has its one report.
    let again = server.cli_json(&[
        "report", "--json", "--study", id, "--rows", &rows, "--single",
    ]);
    assert_eq!(
        (
            &again["accepted"],
            &again["duplicates"],
            &again["acknowledged"]
        ),
        (&0.into(), &0.into(), &4000.into())
    );

    let out = at("result");
    let started = server.cli_json(&["estimate", "--json", "--study", id, "--out", &out]);
    let number = started["number"].to_string();
    let done = server.cli_json(&[
        "estimate", "--json", "--study", id, "--number", &number, "--wait", "--out", &out,
    ]);
    assert_eq!(
        (&done["state"], &done["n"], &done["k"]),
        (&"done".into(), &4000.into(), &1.into())
    );
    let csv = std::fs::read_to_string(format!("{out}/components.csv")).unwrap();
    assert!(
        csv.starts_with("feature,component_1 (above)\nheight,"),
        "{csv}"
    );
    let npy = std::fs::read(format!("{out}/components.npy")).unwrap();
    assert!(npy.starts_with(b"\x93NUMPY") && npy.len() >= 128 + 3 * 8 - 64);
    // Height and weight move together: both loadings are large and of one sign.
    let estimate: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{out}/estimate.json")).unwrap())
            .unwrap();
    // An upload of a few kilobytes is in many commits all the same: there is something to take error bars from.
    let component = &estimate["components"][0];
    assert!(component["eigenvalue_se"].as_f64().unwrap() > 0.0);
    assert_ne!(estimate["bucket_agreement"], serde_json::Value::Null);
    let loadings = component["loadings"].as_array().unwrap();
    assert!(
        loadings[0].as_f64().unwrap() > 0.4 && loadings[1].as_f64().unwrap() > 0.4,
        "{loadings:?}"
    );

    let scores = at("scores.csv");
    let projected = run_json(&[
        "project",
        "--json",
        "--estimate",
        &format!("{out}/estimate.json"),
        "--rows",
        &rows,
        "--out",
        &scores,
    ]);
    assert_eq!(
        (&projected["n"], &projected["k"]),
        (&4000.into(), &1.into())
    );
    let lines: Vec<String> = std::fs::read_to_string(&scores)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!((lines.len(), lines[0].as_str()), (4001, "component_1"));
    // The first row is 20 below in height and 28 in weight: (−2, −28/15, 0) before clipping at 3, over 3.
    let expected =
        (-2.0 * loadings[0].as_f64().unwrap() - 28.0 / 15.0 * loadings[1].as_f64().unwrap()) / 3.0;
    assert!(
        (lines[1].parse::<f64>().unwrap() - expected).abs() < 1e-9,
        "{} {expected}",
        lines[1]
    );
    assert_eq!(
        run(&["project", "--json", "--estimate", "/none", "--rows", &rows])
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn simulate_prints_the_agreed_keys_for_every_source_and_path() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let csv = at("rows.csv", "a,b,c\n1,2,0\n2,1,0\n3,3,1\n");
    let libsvm = at("rows.libsvm", "+1 1:1 2:2\n-1 1:2 2:1\n+1 1:3 2:3 3:1\n");
    let sources: [&[&str]; 6] = [
        &["--model", "spiked", "--p", "6", "--spike", "20"],
        &[
            "--model", "sparse", "--p", "8", "--s", "3", "--spike", "20", "--sparse", "--refit",
        ],
        &["--model", "published", "--p", "6"],
        &["--rows", &csv],
        &["--rows", &libsvm],
        // Against the rows' own components on two of the three columns.
        &["--rows", &csv, "--s", "2", "--sparse"],
    ];
    for source in sources {
        for path in ["law", "device"] {
            let mut arguments = vec![
                "simulate",
                "--json",
                "--n",
                "300",
                "--k",
                "1",
                "--epsilon",
                "8",
                "--repeats",
                "2",
                "--path",
                path,
            ];
            arguments.extend(source);
            let result = run_json(&arguments);
            has_keys(
                &result,
                &[
                    "mechanism",
                    "calibration",
                    "epsilon",
                    "delta",
                    "true_epsilon",
                    "n",
                    "p",
                    "k",
                    "path",
                    "error_mean",
                    "error_std",
                    "predicted_error",
                    "nonprivate_error",
                    "support_f1",
                    "seconds",
                    "repeats",
                ],
            );
            assert_eq!(
                (&result["path"], &result["repeats"]),
                (&path.into(), &2.into()),
                "{source:?}"
            );
            assert_eq!(
                result["support_f1"].is_null(),
                !source.contains(&"--sparse"),
                "{source:?}"
            );
        }
    }
    // The two text formats hold the same rows, and a seed gives the same numbers.
    let of = |rows: &str| {
        let mut result = run_json(&[
            "simulate",
            "--json",
            "--n",
            "300",
            "--k",
            "1",
            "--epsilon",
            "8",
            "--rows",
            rows,
        ]);
        result.as_object_mut().unwrap().remove("seconds");
        result
    };
    assert_eq!(of(&csv), of(&libsvm));
    for wrong in [
        &["--model", "sparse", "--p", "8"][..],
        &["--model", "spiked"],
        &["--model", "spiked", "--p", "8", "--s", "2"],
        &["--model", "spiked", "--p", "8", "--rows", &csv],
        &["--model", "spiked", "--p", "8", "--lambda", "1"],
        &[
            "--model", "spiked", "--p", "8", "--sparse", "--lambda", "-1",
        ],
        &["--model", "spiked", "--p", "8", "--path", "air"],
        &["--model", "spiked", "--p", "0"],
        &["--rows", &csv, "--s", "9"],
        &["--rows", &csv, "--s", "2", "--centring=0.5"],
        &[],
    ] {
        let mut arguments = vec!["simulate", "--n", "10", "--k", "1", "--epsilon", "1"];
        arguments.extend(wrong);
        assert_eq!(run(&arguments).status.code(), Some(2), "{wrong:?}");
    }
}

/// A file of 6,000 rows in which two features move together and six are noise of the data's own.
fn rows_of_a_pair(folder: &Path) -> String {
    let rows = folder.join("rows.csv");
    let mut text = String::new();
    for i in 0..6000_u64 {
        let tall = (i * 37 % 101) as f64 - 50.0;
        let other: Vec<String> = (0..6)
            .map(|j| (((i + 1) * (j + 2) * 7919) % 13).to_string())
            .collect();
        text.push_str(&format!("{tall},{},{}\n", 0.8 * tall, other.join(",")));
    }
    std::fs::write(&rows, text).unwrap();
    rows.to_str().unwrap().to_owned()
}

#[test]
fn a_sparse_estimate_over_http_carries_its_settings() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let rows = rows_of_a_pair(folder.path());
    let id = server.create_study(&["--p", "8", "--epsilon", "8"]);
    let id = id.as_str();
    server.cli_json(&[
        "report", "--header", "no", "--json", "--study", id, "--rows", &rows,
    ]);
    let out = folder.path().join("result");
    let done = server.cli_json(&[
        "estimate",
        "--json",
        "--study",
        id,
        "--k",
        "1",
        "--sparse",
        "--lambda",
        "0.12",
        "--rho",
        "0.5",
        "--refit",
        "--max-iterations",
        "777",
        "--tolerance",
        "1e-5",
        "--wait",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert_eq!(done["state"], "done");
    let text = std::fs::read_to_string(out.join("estimate.json")).unwrap();
    let estimate: serde_json::Value = serde_json::from_str(&text).unwrap();
    let sparse = &estimate["sparse"];
    assert_eq!(sparse["settings"]["max_iterations"], 777);
    assert_eq!(
        (
            &sparse["lambda"],
            &sparse["settings"]["rho"],
            &sparse["refit"]
        ),
        (&0.12.into(), &0.5.into(), &true.into())
    );
    assert_eq!(sparse["converged"], true);
    assert!(sparse["duality_gap"].as_f64().unwrap() >= -1e-12);
    assert_eq!(sparse["support"], serde_json::json!([0, 1]), "{sparse}");
    let loadings = estimate["components"][0]["loadings"].as_array().unwrap();
    assert!(
        loadings[2..].iter().all(|loading| loading == 0.0),
        "{loadings:?}"
    );
    // Four reports are in four commits at most: too few buckets for folds.
    let few = folder.path().join("few.csv");
    std::fs::write(&few, "1,2,3,4,5,6,7,8\n".repeat(4)).unwrap();
    let id = server.create_study(&["--p", "8", "--epsilon", "8"]);
    let id = id.as_str();
    let few = few.to_str().unwrap();
    server.cli_json(&[
        "report", "--header", "no", "--json", "--study", id, "--rows", few,
    ]);
    let cv = ["estimate", "--study", id, "--sparse", "--lambda", "cv"];
    // Were it not refused, its files would not land in the source tree.
    let out = out.to_str().unwrap();
    let refused = server.cli(&[&cv[..], &["--wait", "--out", out]].concat());
    assert_ne!(refused.status.code(), Some(0));
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("hold reports"), "{message}");
}

#[test]
fn error_bars_and_cross_validation_over_the_buckets_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let id = server.create_study(&["--p", "8", "--epsilon", "8"]);
    let id = id.as_str();
    // One upload, which is divided.
    let rows = rows_of_a_pair(folder.path());
    server.cli_json(&[
        "report", "--header", "no", "--json", "--study", id, "--rows", &rows,
    ]);
    let out = folder.path().join("result");
    let out = out.to_str().unwrap();
    let text = server.cli(&[
        "estimate", "--study", id, "--k", "1", "--sparse", "--refit", "--lambda", "cv", "--wait",
        "--out", out,
    ]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains(" ± "), "{text}");
    let text = std::fs::read_to_string(format!("{out}/estimate.json")).unwrap();
    let estimate: serde_json::Value = serde_json::from_str(&text).unwrap();
    let component = &estimate["components"][0];
    for name in ["eigenvalue_se", "debiased_eigenvalue_se", "direction_se"] {
        assert!(component[name].as_f64().unwrap() > 0.0, "{component}");
    }
    let sparse = &estimate["sparse"];
    let cv = &sparse["cross_validation"];
    assert_eq!(
        (&cv["folds"], &sparse["settings"]["lambda"]),
        (&5.into(), &"cv".into())
    );
    assert_eq!(cv["chosen"], sparse["lambda"]);
    assert!(cv["path"].as_array().unwrap().len() > 3, "{cv}");
    every_file_of_a_path(&server, id, out);
}

/// With `--lambda path` every table and picture is written, and they agree with the document.
fn every_file_of_a_path(server: &ServerProcess, id: &str, out: &str) {
    let text = server.cli(&[
        "estimate", "--study", id, "--k", "2", "--sparse", "--lambda", "path", "--wait", "--out",
        out,
    ]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let read = |name: &str| {
        assert!(text.contains(name), "{name} is not in {text}");
        std::fs::read_to_string(format!("{out}/{name}")).unwrap()
    };
    let estimate: serde_json::Value = serde_json::from_str(&read("estimate.json")).unwrap();
    let agreement = &estimate["bucket_agreement"];
    assert_eq!(agreement["false_alarm_rate"], 1e-3);
    assert!(
        text.contains(&format!("{} buckets of reports", agreement["buckets"])),
        "{text}"
    );
    let names: Vec<String> = (1..=8).map(|i| format!("x{i}")).collect();
    assert_eq!(read("features.txt").lines().collect::<Vec<_>>(), names);

    let summary = read("summary.csv");
    let lines: Vec<Vec<&str>> = summary
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    assert_eq!((lines.len(), lines[0].len()), (3, 9));
    for (j, line) in lines[1..].iter().enumerate() {
        let component = &estimate["components"][j];
        assert_eq!(
            (line[0], line[1]),
            (
                (j + 1).to_string().as_str(),
                component["verdict"].as_str().unwrap()
            )
        );
        // Of two numbers in the document the smaller one is the alignment; the consistency test has the group.
        let of_the_document = |name: &str| !name.starts_with("alignment");
        let cells = lines[0].iter().zip(line).skip(3);
        for (name, cell) in cells.filter(|(name, _)| of_the_document(name)) {
            match component[name].as_f64() {
                Some(value) => assert_eq!(cell.parse::<f64>().unwrap(), value, "{name}"),
                None => assert_eq!(*cell, "", "{name}"),
            }
        }
    }

    let path = &estimate["sparse"]["path"];
    let points = path["points"].as_array().unwrap();
    let table = read("lambda_path.csv");
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    assert_eq!((lines.len(), lines[0].len()), (points.len() + 1, 8 + 8));
    let chosen: Vec<_> = lines.iter().filter(|line| line[1] == "true").collect();
    assert_eq!(chosen.len(), 1);
    assert_eq!(
        chosen[0][0].parse::<f64>().ok(),
        estimate["sparse"]["lambda"].as_f64()
    );
    assert_eq!(lines[1][6].split("; ").count(), 2);

    for picture in [
        "scree.svg",
        "alignment.svg",
        "loadings.svg",
        "lambda_path.svg",
        "lambda_rows.svg",
    ] {
        let svg = read(picture);
        assert!(svg.starts_with("<svg") && !svg.contains("NaN"), "{picture}");
    }
}

#[test]
fn usage_errors_exit_with_two_and_help_with_zero() {
    assert_eq!(run(&["--help"]).status.code(), Some(0));
    assert_eq!(run(&["study", "create", "--help"]).status.code(), Some(0));
    assert_eq!(run(&["--version"]).status.code(), Some(0));
    assert_eq!(run(&["completions", "bash"]).status.code(), Some(0));
    for wrong in [
        &["no-such-command"][..],
        &["demo", "--n", "-3"],
        &["demo", "--mechanism", "none"],
        &["serve"],
        &[],
    ] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// Descriptors that do not suffice are said before the server starts and when it does; with those that there are it
/// serves.
#[test]
fn too_few_descriptors_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let text = data.display().to_string();
    let mut shell = std::process::Command::new("sh");
    let checked = shell
        .args(["-c", "ulimit -n 256; exec \"$0\" \"$@\""])
        .arg(crate::program::program().get_program())
        .args([
            "serve",
            "--check-config",
            "--listen",
            "127.0.0.1:0",
            "--data",
            &text,
        ])
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let said = String::from_utf8_lossy(&checked.stderr);
    for word in ["max_connections is 4096", "256 files", "LimitNOFILE"] {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
    let mut server =
        crate::program::ServerProcess::start_limited(&data, "ulimit -n 256", &[], &log);
    assert!(
        std::fs::read_to_string(&log)
            .unwrap()
            .contains("max_connections")
    );
    assert!(server.stop());
    // A soft limit is raised.
    let data = folder.path().join("other");
    let mut server =
        crate::program::ServerProcess::start_limited(&data, "ulimit -Sn 256", &[], &log);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let soft: u64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    let hard: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
    assert_eq!(soft, hard.min(4_160), "{line}");
    assert!(server.stop());
}
