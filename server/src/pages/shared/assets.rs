//! The stylesheet, the script and the icon, compiled into the program.

use std::sync::LazyLock;

use axum::response::Response;
use eigenveil_shared::study::to_hex;
use sha2::{Digest, Sha256};

use super::images;

const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/live.js");
const SYMBOL: &str = include_str!("../assets/icon.svg");

pub(crate) const ICON: &str = "/assets/icon.svg";

/// Changes with the stylesheet and the script.
static VERSION: LazyLock<String> =
    LazyLock::new(|| to_hex(&Sha256::digest([STYLE, SCRIPT].concat())[..6]));

pub(crate) fn style_path() -> String {
    format!("/assets/style.css?v={}", *VERSION)
}

pub(crate) fn script_path() -> String {
    format!("/assets/live.js?v={}", *VERSION)
}

pub(crate) async fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

pub(crate) async fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT)
}

pub(crate) async fn icon() -> Response {
    asset("image/svg+xml", SYMBOL)
}

fn asset(media_type: &str, text: &'static str) -> Response {
    images::file(media_type, "public, max-age=86400", text)
}
