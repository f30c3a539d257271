//! Every example is run.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

/// Examples are built before the tests of their package, beside them.
fn example(name: &str) -> Command {
    let mut path: PathBuf = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    Command::new(path.join("examples").join(name))
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may already have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn custom_preprocessing_reports_every_user() {
    let output: Output = example("custom_preprocessing").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert_eq!(text.matches("24 payload bytes").count(), 3, "{text}");
    assert_eq!(text.matches("row-not-finite").count(), 1, "{text}");
}

#[tokio::test]
async fn the_sdk_reports_to_a_server_in_an_own_application() {
    use eigenveil_client::{
        Ledger,
        http::{BearerToken, OperatorClient},
    };
    use eigenveil_shared::{
        api::CreateStudyRequest, estimate::ComponentCount, mechanism::MechanismKind,
    };

    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut server = KillOnDrop(
        example("own_axum_app")
            .arg(&data)
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let root = line.strip_prefix("listening on ").unwrap().to_owned();
    let url = format!("{root}/collect");

    let analyst = OperatorClient::new(
        &url,
        &BearerToken::from_file(data.join("operator.token")).unwrap(),
    )
    .unwrap();
    let study = analyst
        .create_study(&CreateStudyRequest {
            name: "example".into(),
            dimension: 5,
            features: None,
            norm: Default::default(),
            centring: None,
            weights: None,
            mechanism: Some(MechanismKind::DoubleCap),
            calibration: Default::default(),
            epsilon: 1.0,
            delta: None,
            default_k: ComponentCount::Auto,
            draft: false,
            enrolment: eigenveil_shared::enrolment::Enrolment::Open,
            about: Default::default(),
            sites: None,
            preparation: None,
        })
        .await
        .unwrap();
    let store = folder.path().join("device.json");
    for _ in 0..2 {
        let output = example("own_transport")
            .args([&url, &study.id, &study.fingerprint])
            .arg(&store)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("the server has it"), "{text} {error}");
    }
    let ledger = folder.path().join("device.ledger");
    for expected in ["1 accepted, 0 duplicates", "0 accepted, 0 duplicates"] {
        let output = example("embed_sdk")
            .args([&url, &study.id, &study.fingerprint])
            .arg(&ledger)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains(expected),
            "{text} {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    // One report from each of the two devices.
    assert_eq!(analyst.study(&study.id).await.unwrap().reports_accepted, 2);
    let receipt = Ledger::open_existing(&ledger).unwrap().receipt().unwrap();
    // The 2⁻²⁰ of double-cap is charged, as it is reported.
    assert_eq!(Some(receipt.spent.epsilon), study.privacy.true_epsilon);
    assert!(receipt.to_string().contains("the server has it"));
}
