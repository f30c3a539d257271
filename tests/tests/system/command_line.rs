//! The interface for scripts: keys, exit codes, one line on standard output.

use std::fmt::Write as _;

use crate::harness::{
    Folder, ServerProcess, has, has_keys, refused, refuses, run, run_json, says, shell, stderr,
    succeeded,
};

const DEMO_KEYS: &str = "n p k mechanism epsilon delta error nonprivate_captured captured payload_bytes \
    report_bytes reports_per_second components_above_floor out";
const SIMULATE_KEYS: &str = "mechanism calibration epsilon delta true_epsilon n p k noise error_mean error_sd \
    error_predicted_from_truth nonprivate_error support_f1 seconds repeats";

#[test]
fn demo_prints_the_agreed_keys_and_writes_its_files() {
    let folder = Folder::new();
    let result = run_json(&format!(
        "demo --n 40000 --k 1 --out {}",
        folder.at("result")
    ));
    has_keys(&result, DEMO_KEYS);
    assert_eq!(result["n"], 40000);
    assert_eq!(result["mechanism"], "double-cap");
    has(&result, "epsilon=4.0 delta=0.0");
    assert_eq!(result["payload_bytes"], 16);
    assert_eq!(result["report_bytes"], 58 + 16);
    let [captured, best] =
        ["captured", "nonprivate_captured"].map(|key| result[key].as_f64().unwrap());
    // The noise is fresh: with a fifth of the participants it is 0.94 ± 0.02, below 0.9 in three of 60 runs.
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
        ("index.html", "non-private"),
    ] {
        let text = folder.read(&format!("result/{file}"));
        assert!(text.contains(holds), "{file} does not hold {holds:?}");
        for outside in ["src=\"http", "href=\"http", "<script", "NaN", "Infinity"] {
            assert!(!text.contains(outside), "{file} holds {outside:?}");
        }
    }
}

#[test]
fn demo_takes_own_rows_and_refuses_bad_ones() {
    let folder = Folder::new();
    let mut text = String::from("alpha,beta,gamma\n");
    for i in 0..50 {
        writeln!(text, "{},{},1", 10 + i % 7, i % 3).unwrap();
    }
    let rows = folder.write("rows.csv", text);
    let demo = format!(
        "demo --n 500 --rows {rows} --out {} --k",
        folder.at("result")
    );
    assert_eq!(run_json(&format!("{demo} 1"))["p"], 3);
    assert!(folder.read("result/index.html").contains("gamma"));
    refuses(&demo, &[("4", "k")]);
    folder.write("rows.csv", "1,2,3\n4,inf,6\n");
    let message = stderr(&run(&format!("{demo} 1")));
    let words = "rows.csv: line 2, column 2: the value is too large";
    assert!(message.contains(words), "{message}");
}

#[test]
fn simulate_prints_the_agreed_keys_for_every_source_and_noise() {
    let folder = Folder::new();
    let csv = folder.write("rows.csv", "a,b,c\n1,2,0\n2,1,0\n3,3,1\n");
    let libsvm = folder.write("rows.libsvm", "+1 1:1 2:2\n-1 1:2 2:1\n+1 1:3 2:3 3:1\n");
    let simulate = "simulate --n 300 --k 1 --epsilon 8";
    for source in [
        "--model spiked --p 6 --spike 20",
        "--model sparse --p 8 --s 3 --spike 20 --sparse --refit",
        "--model wang-xu --p 6",
        &format!("--rows {csv}"),
        &format!("--rows {libsvm}"),
        // Compared with the rows' own components on two of the three columns.
        &format!("--rows {csv} --s 2 --sparse"),
        &format!("--rows {csv} --s 2"),
        &format!("--rows {csv} --bound-rows clip --centring=0.6"),
    ] {
        for noise in ["from-sum", "per-report"] {
            let result = run_json(&format!("{simulate} --repeats 2 --noise {noise} {source}"));
            has_keys(&result, SIMULATE_KEYS);
            has(&result, &format!("noise={noise} repeats=2"));
            let centring = source.contains("--centring").then_some(0.6);
            assert_eq!(result["centring"].as_f64(), centring);
            assert_eq!(
                result["support_f1"].is_null(),
                !source.contains("--sparse"),
                "{source}"
            );
            // Predicted is the error of plain PCA against the population's own components.
            assert_eq!(
                result["error_predicted_from_truth"].is_null(),
                source.contains("--sparse") || source.contains("--s 2"),
                "{source}"
            );
        }
    }
    // Both text formats have the same rows, and a seed gives the same numbers.
    let simulated = |rows: &str| {
        let mut result = run_json(&format!("{simulate} --rows {rows}"));
        result.as_object_mut().unwrap().remove("seconds");
        result
    };
    assert_eq!(simulated(&csv), simulated(&libsvm));
    let rows = format!("--rows {csv}");
    let wrong = [
        "--model sparse --p 8",
        "--model spiked",
        &format!("--model spiked --p 8 {rows}"),
        "--model spiked --p 8 --sparse --lambda -1",
        "--model spiked --p 8 --noise air",
        "--model spiked --p 0",
        &format!("{rows} --s 9"),
        &format!("{rows} --s 2 --centring=0.5"),
        "",
    ];
    refuses(
        "simulate --n 10 --k 1 --epsilon 1",
        &wrong.map(|flags| (flags, "")),
    );
}

/// 6,000 rows in which two features are correlated and six are noise, in one upload that is split into many commits.
#[test]
fn sparse_estimates_carry_settings_error_bars_and_cross_validation() {
    let folder = Folder::new();
    let mut text = String::new();
    for i in 0..6000_u64 {
        let tall = (i * 37 % 101) as f64 - 50.0;
        write!(text, "{tall},{}", 0.8 * tall).unwrap();
        for j in 0..6 {
            write!(text, ",{}", ((i + 1) * (j + 2) * 7919) % 13).unwrap();
        }
        text.push('\n');
    }
    let server = folder.server();
    let id = server.create_study("--p 8 --epsilon 8");
    server.report(&id, &folder.write("rows.csv", text));
    let estimate = format!(
        "estimate --study {id} --sparse --wait --out {} --overwrite",
        folder.at("result")
    );
    let done = server.cli_json(&format!(
        "{estimate} --k 1 --lambda 0.12 --rho 0.5 --refit --max-iterations 777 --tolerance 1e-5"
    ));
    assert_eq!(done["state"], "done");
    let document = folder.read_json("result/estimate.json");
    let sparse = &document["sparse"];
    assert_eq!(sparse["settings"]["max_iterations"], 777);
    has(sparse, "lambda=0.12 settings.rho=0.5 refit=true");
    assert_eq!(sparse["converged"], true);
    assert!(sparse["duality_gap"].as_f64().unwrap() >= -1e-12);
    assert_eq!(sparse["support"], serde_json::json!([0, 1]), "{sparse}");
    let loadings = document["components"][0]["loadings"].as_array().unwrap();
    assert!(
        loadings[2..].iter().all(|loading| loading == 0.0),
        "{loadings:?}"
    );

    // The command says how firm a chosen k is, in its document and in words.
    let done = server.cli_json(&format!("{estimate} --k auto"));
    let same = done["k_shares"]["same"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&same), "{done}");
    let text = succeeded(&server.cli(&format!("{estimate} --k auto")));
    let firm = format!(" would choose k = {}", done["k"]);
    assert!(text.contains(&firm), "{text}");

    let text = succeeded(&server.cli(&format!("{estimate} --k 1 --lambda cv")));
    assert!(text.contains(" ± "), "{text}");
    let document = folder.read_json("result/estimate.json");
    let component = &document["components"][0];
    for name in ["eigenvalue_se", "debiased_eigenvalue_se", "direction_se"] {
        assert!(component[name].as_f64().unwrap() > 0.0, "{component}");
    }
    let sparse = &document["sparse"];
    let cv = &sparse["cross_validation"];
    assert_eq!(
        (&cv["folds"], &sparse["settings"]["lambda"]),
        (&5.into(), &"cv".into())
    );
    assert_eq!(cv["lambda_1se"], sparse["lambda"]);
    assert!(cv["grid"].as_array().unwrap().len() > 3, "{cv}");
    let text = succeeded(&server.cli(&format!("{estimate} --k 2 --lambda path")));
    check_files_of_a_lambda_path(&folder, &text);
    let shrunk = succeeded(&server.cli(&format!("{estimate} --k 1 --refit=no")));
    let why = "error not known: the components are not refitted on the selected features";
    assert_eq!(shrunk.matches(why).count(), 2, "{shrunk}");
    let names = folder.names("result");
    assert!(
        !names.iter().any(|name| name.ends_with("alignment.svg")),
        "{names:?}"
    );

    // Four reports are in at most four commits: too few buckets for cross-validation.
    let few = server.create_study("--p 8 --epsilon 8");
    server.report(
        &few,
        &folder.write("few.csv", "1,2,3,4,5,6,7,8\n".repeat(4)),
    );
    let cv = format!("{estimate} --lambda cv").replace(&id, &few);
    refused(&server.cli(&cv), 2, &["buckets with reports"]);
}

/// With `--lambda path` every table and figure is written, and they agree with the document.
fn check_files_of_a_lambda_path(folder: &Folder, text: &str) {
    let read = |name: &str| {
        assert!(text.contains(name), "{name} is not in {text}");
        folder.read(&format!("result/{name}"))
    };
    let estimate: serde_json::Value = serde_json::from_str(&read("estimate.json")).unwrap();
    let agreement = &estimate["bucket_agreement"];
    assert_eq!(agreement["false_alarm_rate"], 1e-3);
    let buckets = format!("{} buckets of reports", agreement["buckets"]);
    assert!(text.contains(&buckets), "{text}");
    let names: Vec<String> = (1..=8).map(|i| format!("x{i}")).collect();
    assert_eq!(read("features.txt").lines().collect::<Vec<_>>(), names);
    let loadings = folder.read("result/components.csv");
    assert!(loadings.starts_with("feature,component_1 ("), "{loadings}");
    let npy = std::fs::read(folder.at("result/components.npy")).unwrap();
    assert!(npy.starts_with(b"\x93NUMPY"));

    let table = |name: &str| -> Vec<Vec<String>> {
        let text = read(name);
        let lines = text.lines().map(|line| line.split(',').map(str::to_owned));
        lines.map(Iterator::collect).collect()
    };
    let lines = table("summary.csv");
    assert_eq!((lines.len(), lines[0].len()), (3, 9));
    for (j, line) in lines[1..].iter().enumerate() {
        let component = &estimate["components"][j];
        assert_eq!(line[0], (j + 1).to_string());
        assert_eq!(component["verdict"], line[1].as_str());
        for (name, cell) in lines[0].iter().zip(line).skip(3) {
            assert_eq!(cell.parse().ok(), component[name].as_f64(), "{name}");
        }
    }

    let points = estimate["sparse"]["path"]["points"].as_array().unwrap();
    let lines = table("lambda_path.csv");
    assert_eq!((lines.len(), lines[0].len()), (points.len() + 1, 8 + 8));
    let chosen: Vec<_> = lines.iter().filter(|line| line[1] == "true").collect();
    assert_eq!(chosen.len(), 1);
    assert_eq!(
        chosen[0][0].parse().ok(),
        estimate["sparse"]["lambda"].as_f64()
    );
    assert_eq!(lines[1][6].split("; ").count(), 2);

    for name in [
        "scree",
        "alignment",
        "loadings",
        "lambda_path",
        "lambda_rows",
    ] {
        let svg = read(&format!("{name}.svg"));
        assert!(svg.starts_with("<svg") && !svg.contains("NaN"), "{name}");
    }
}

#[test]
fn usage_errors_exit_with_two_and_help_with_zero() {
    for right in [
        "--help",
        "study create --help",
        "--version",
        "completions bash",
    ] {
        succeeded(&run(right));
    }
    for wrong in [
        "no-such-command",
        "demo --n -3",
        "demo --mechanism none",
        "serve",
        "",
    ] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong}");
    }
}

/// Too few file descriptors are reported by the check and at the start; the server serves with those it has.
#[test]
fn too_few_descriptors_are_reported() {
    let folder = Folder::new();
    let log = folder.path().join("log");
    let checked = shell("ulimit -n 256; exec")
        .args(["serve", "--check-config", "--listen", "127.0.0.1:0"])
        .args(["--data", &folder.at("data")])
        .output()
        .unwrap();
    succeeded(&checked);
    let message = stderr(&checked);
    says(
        &message,
        &["max_connections is 4096", "256 files", "LimitNOFILE"],
    );
    let start = |data: &str, limit: &str| {
        let before = format!("ulimit {limit} 256; exec");
        ServerProcess::start_limited(&folder.path().join(data), &before, &log, "")
    };
    let mut server = start("data", "-n");
    assert!(folder.read("log").contains("max_connections"));
    assert!(server.stop());
    // A soft limit is raised.
    let mut server = start("other", "-Sn");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    let mut lines = limits.lines();
    let line = lines
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let numbers: Vec<u64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    assert_eq!(numbers[0], numbers[1].min(4_160), "{line}");
    assert!(server.stop());
}
