//! The stylesheet, the script and the icon, compiled into the program.

use std::sync::LazyLock;

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use eigenveil_shared::study::to_hex;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/live.js");
const SYMBOL: &str = include_str!("assets/icon.svg");

/// Path of the icon.
pub(super) const ICON: &str = "/assets/icon.svg";

/// Path of the stylesheet, with a version that changes with its text.
pub(super) fn style_path() -> String {
    static VERSION: LazyLock<String> = LazyLock::new(|| version(STYLE));
    format!("/assets/style.css?v={}", *VERSION)
}

/// Path of the script, with a version that changes with its text.
pub(super) fn script_path() -> String {
    static VERSION: LazyLock<String> = LazyLock::new(|| version(SCRIPT));
    format!("/assets/live.js?v={}", *VERSION)
}

fn version(text: &str) -> String {
    to_hex(&Sha256::digest(text.as_bytes())[..6])
}

pub(super) async fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

pub(super) async fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT)
}

pub(super) async fn icon() -> Response {
    asset("image/svg+xml", SYMBOL)
}

fn asset(media_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "public, max-age=86400"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    ];
    (headers, text).into_response()
}
