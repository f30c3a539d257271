//! Any path, query string and body at the whole router: an answer, never a 5xx.
#![no_main]

mod site;

use axum::http::Method;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[first, second], data)) = data.split_first_chunk::<2>() else {
        return;
    };
    let (target, body) = match data.iter().position(|&byte| byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &data[data.len()..]),
    };
    let Ok(target) = std::str::from_utf8(target) else {
        return;
    };
    site::with(|site| {
        let study = format!("/v1/studies/{}", site.study);
        let target = match first % 6 {
            0 => format!("/{target}"),
            1 => format!("{study}/{target}"),
            2 => format!("{study}/estimates/1?{target}"),
            3 => format!("{study}/reports?{target}"),
            4 => format!("/v1/studies?{target}"),
            _ => format!("{study}/estimates?{target}"),
        };
        // Rotating the operator token would lock the fuzzer out.
        if target.contains("operator-token") {
            return;
        }
        let method = [Method::GET, Method::POST, Method::DELETE, Method::PUT]
            [usize::from(second & 3)]
        .clone();
        let media = [
            "application/json",
            "application/vnd.eigenveil.report",
            "application/vnd.eigenveil.report-batch",
            "text/plain",
            "application/vnd.eigenveil.enrolled-report",
            "application/vnd.eigenveil.enrolled-report-batch",
            "application/vnd.eigenveil.study-export",
            "",
        ][usize::from((second >> 2) & 7)];
        let operator = second & 0x80 != 0;
        let (status, answer) = site.ask(&method, &target, operator, media, body);
        assert!(
            status < 500,
            "{method} {target}: {status} {}",
            String::from_utf8_lossy(&answer)
        );
    });
});
