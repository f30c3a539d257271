//! Studies, stores and estimates as files, by the command line: export, import, delete, backup, restore.

use std::fs;

use crate::harness::{Folder, ServerProcess, has, refused, says, succeeded};

#[test]
fn studies_are_exported_imported_merged_and_deleted() {
    let folder = Folder::new();
    let rows = (0..40).map(|i| format!("{},{},1\n", i % 7, i % 3));
    let rows = folder.write("rows.csv", rows.collect::<String>());
    let [one, two] = ["one", "two"].map(|name| ServerProcess::start(&folder.path().join(name)));
    let flags = "--p 3 --epsilon 4 --k 1";
    let id = one.create_study(flags);
    one.report(&id, &rows);

    let file = folder.at("a.evstudy");
    let export = format!("study export {id} --out {file}");
    let exported = one.cli_json(&export);
    assert_eq!(exported["bytes"], fs::metadata(&file).unwrap().len());
    // An existing file is not overwritten.
    refused(&one.cli(&export), 2, &["exists", "a.evstudy"]);

    let import = format!("study import {file}");
    for (outcome, reports) in [("created", 40), ("already-imported", 0)] {
        let imported = two.cli_json(&import);
        has(&imported, &format!("outcome={outcome} reports={reports}"));
        assert_eq!(imported["study"]["id"], id.as_str());
    }

    let second = two.create_study(flags);
    let merged = two.cli_json(&format!("{import} --into {second}"));
    assert_eq!(merged["outcome"], "merged");
    assert_eq!(merged["study"]["reports_accepted"], 40);
    // The estimate of the imported study states the influence of one report.
    let out = folder.at("result");
    let estimate = format!("estimate --study {id} --wait --out {out} --overwrite");
    let printed = succeeded(&two.cli(&estimate));
    says(&printed, &["influence: exchanging one report"]);

    // Deleting needs a confirmation and a closed study.
    refused(&two.cli(&format!("study delete {id}")), 2, &["--yes"]);
    let delete = format!("study delete {id} --yes");
    refused(&two.cli(&delete), 1, &["close it"]);
    two.cli_json(&format!("study close {id}"));
    assert_eq!(two.cli_json(&delete)["deleted"], id.as_str());
    let printed = two.cli(&format!("study show {id}"));
    refused(&printed, 1, &["there is no study"]);
    let left = two.cli_json("study list");
    assert_eq!(left["studies"].as_array().unwrap().len(), 1);
}

/// Nothing of an older result stays beside a new one; other files do.
#[test]
fn a_result_is_replaced_when_asked() {
    let folder = Folder::new();
    let server = folder.server();
    let study = server.create_study("--p 6 --epsilon 8");
    let rows = (0..400).map(|i| {
        let x = f64::from(i % 7) - 3.0;
        format!("{x},{},0.1,0.2,-0.1,0.3\n", 0.5 * x)
    });
    server.report(&study, &folder.write("rows.csv", rows.collect::<String>()));
    fs::create_dir(folder.at("out")).unwrap();
    folder.write("out/notes.txt", "mine");
    let estimate = |more: &str| {
        let out = folder.at("out");
        let command = format!("estimate --study {study} --wait --out {out} {more}");
        server.cli_json(&command);
        folder.names("out")
    };
    let plain = estimate("--k 2");
    let sparse = estimate("--k 2 --sparse --lambda path --overwrite");
    assert!(sparse.contains(&"lambda_path.csv".to_owned()));
    assert_eq!(estimate("--k 1 --overwrite"), plain);
    let document = folder.read_json("out/estimate.json");
    assert_eq!(document["components"].as_array().unwrap().len(), 1);
    assert_eq!(folder.read("out/notes.txt"), "mine");
}
