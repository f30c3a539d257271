//! The noiseless oracle over HTTP: without noise the server's estimate equals plain PCA.
//!
//! No noiseless mechanism exists in the product. The test writes the wire bytes of tri(xxᵀ) itself, from
//! `docs/protocol.md`, without the project's codec.

use eigenveil_estimation::{metrics, pca::pca};
use eigenveil_shared::{estimate::Estimate, study::from_hex};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};

use crate::harness::Folder;

const P: usize = 12;
const N: usize = 400;

/// Rows near a plane, so that two components stand out.
fn rows() -> Vec<Vec<f64>> {
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    let mut uniform = || rng.random::<f64>() - 0.5;
    (0..N)
        .map(|_| {
            let (a, b) = (2.0 * uniform(), uniform());
            let x: Vec<f64> = (0..P)
                .map(|j| a * (j as f64 + 1.0).sin() + b * (2.0 * j as f64).cos() + 0.2 * uniform())
                .collect();
            let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt();
            x.iter().map(|v| v / norm).collect()
        })
        .collect()
}

/// `tri(xxᵀ)` row by row as little-endian f32.
fn triangle(x: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..P {
        for j in i..P {
            bytes.extend_from_slice(&((x[i] * x[j]) as f32).to_le_bytes());
        }
    }
    bytes
}

fn identifier(number: usize) -> [u8; 16] {
    let mut id = [0_u8; 16];
    id[..4].copy_from_slice(&[0x01, 0x93, 0x80, 0x00]);
    id[6] = 0x70;
    id[8] = 0x80;
    id[12..].copy_from_slice(&(number as u32).to_be_bytes());
    id
}

#[tokio::test]
async fn pca_over_http_equals_plain_pca() {
    let folder = Folder::new();
    let server = folder.server();
    let id = server.create_study("--p 12 --epsilon 1 --mechanism symmetric-gaussian");
    let study = server.cli_json(&format!("study show {id}"));
    let fingerprint = from_hex(study["fingerprint"].as_str().unwrap()).unwrap();
    let rows = rows();
    let url = format!("{}/v1/studies/{id}/reports", server.url);
    let client = reqwest::Client::new();
    let payload_len = (4 * P * (P + 1) / 2) as u64;
    let post = async |kind: &str, body: Vec<u8>| {
        let kind = format!("application/vnd.eigenveil.{kind}");
        let request = client.post(&url).header("content-type", kind);
        request.body(body).send().await.unwrap()
    };

    // Half of them one by one …
    for (number, row) in rows[..N / 2].iter().enumerate() {
        let mut body = vec![1, 0];
        body.extend_from_slice(&fingerprint);
        body.extend_from_slice(&identifier(number));
        body.extend_from_slice(&payload_len.to_le_bytes());
        body.extend_from_slice(&triangle(row));
        assert_eq!(post("report", body).await.status(), 201);
    }
    // … and half of them in one batch.
    let mut body = vec![1, 0];
    body.extend_from_slice(&fingerprint);
    body.extend_from_slice(&payload_len.to_le_bytes());
    body.extend_from_slice(&((N / 2) as u64 * (16 + payload_len)).to_le_bytes());
    for (number, row) in rows.iter().enumerate().skip(N / 2) {
        body.extend_from_slice(&identifier(number));
        body.extend_from_slice(&triangle(row));
    }
    let answer = post("report-batch", body).await;
    let receipt: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(receipt["accepted"], (N / 2) as u64, "{receipt}");

    let out = folder.at("result");
    server.cli_json(&format!("estimate --study {id} --k 2 --wait --out {out}"));
    let estimate: Estimate = serde_json::from_str(&folder.read("result/estimate.json")).unwrap();
    assert_eq!(estimate.n, N as u64);

    let mut moment = DMatrix::zeros(P, P);
    for row in &rows {
        let x = DVector::from_column_slice(row);
        moment += &x * x.transpose() / N as f64;
    }
    let plain = pca(&moment, 2).unwrap();
    let ours = DMatrix::from_fn(P, 2, |i, j| estimate.components[j].loadings[i]);
    let distance = metrics::projector_distance(&ours, &plain.vectors).unwrap();
    assert!(distance < 1e-5, "the subspaces differ by {distance}");
    for j in 0..2 {
        assert!(
            (ours.column(j) - plain.vectors.column(j)).amax() < 1e-5,
            "component {j}"
        );
        assert!((estimate.components[j].eigenvalue - plain.values[j]).abs() < 1e-6);
    }
    for (a, b) in estimate.eigenvalues.iter().zip(plain.spectrum.iter()) {
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }
    assert!((estimate.total_variance.unwrap() - 1.0).abs() < 1e-6);
}
