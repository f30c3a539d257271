//! The OpenAPI document, generated from the handlers.

use std::{collections::BTreeSet, sync::LazyLock};

use axum::{body::Bytes, extract::State, http::header, response::IntoResponse};
use serde_json::Value;

use crate::{app::AppState, config::PublicUrl};

/// The OpenAPI document of [`router`](crate::router); a server has it at `/openapi.json`.
///
/// ```
/// let document = eigenveil_server::openapi();
/// assert!(document["paths"]["/v1/studies"]["post"].is_object());
/// ```
pub fn openapi() -> Value {
    // A document is strings, numbers and maps of them, so writing it cannot fail.
    let mut document = serde_json::to_value(super::routes().into_openapi()).unwrap_or_default();
    let mut parts = BTreeSet::new();
    tidy_schemas(&mut document, &mut parts);
    allow_extra_properties(&mut document, parts);
    document
}

/// Removes Rust examples and rustdoc links from descriptions. A schema in an `allOf` must not reject the keys of the
/// others; `parts` collects the names of such schemas.
fn tidy_schemas(value: &mut Value, parts: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = plain_description(text);
            }
            for item in map
                .get_mut("allOf")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
                .filter_map(Value::as_object_mut)
            {
                item.remove("additionalProperties");
                parts.extend(reference(item));
            }
            map.values_mut()
                .for_each(|value| tidy_schemas(value, parts));
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|value| tidy_schemas(value, parts)),
        _ => {}
    }
}

/// A description without its Rust example; links such as [`router`](crate::router) become plain code.
fn plain_description(text: &str) -> String {
    let (text, _) = text.split_once("\n\n```").unwrap_or((text, ""));
    let mut parts = text.split("[`");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push('`');
        let Some((name, rest)) = part.split_once("`]") else {
            plain.push_str(part);
            continue;
        };
        let name = name.rsplit("::").next().unwrap_or(name);
        let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        plain.extend([name, "`", target.map_or(rest, |(_, rest)| rest)]);
    }
    plain
}

/// Allows additional properties in the named schemas, and in the schemas they refer to.
fn allow_extra_properties(document: &mut Value, mut names: BTreeSet<String>) {
    while let Some(name) = names.pop_first() {
        let schema = &mut document["components"]["schemas"][name.as_str()];
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("additionalProperties");
            names.extend(reference(schema));
        }
    }
}

fn reference(schema: &serde_json::Map<String, Value>) -> Option<String> {
    let name = schema.get("$ref")?.as_str()?;
    name.strip_prefix("#/components/schemas/")
        .map(ToOwned::to_owned)
}

/// This document
#[utoipa::path(
    get, path = "/openapi.json", tag = "service",
    responses((status = 200, description = "The OpenAPI document", body = Object)),
)]
pub(super) async fn document(State(app): State<AppState>) -> impl IntoResponse {
    static DOCUMENT: LazyLock<Bytes> =
        LazyLock::new(|| serde_json::to_vec(&openapi()).unwrap_or_default().into());
    let document = match &app.config().public_url {
        None => DOCUMENT.clone(),
        Some(url) => with_server(&DOCUMENT, url),
    };
    ([(header::CONTENT_TYPE, "application/json")], document)
}

/// The document with the server's address, written behind its first brace instead of parsing it for each request. The
/// address has no character that JSON escapes.
fn with_server(document: &[u8], url: &PublicUrl) -> Bytes {
    let servers = format!("{{\"servers\":[{{\"url\":\"{url}\"}}],");
    let rest = document.get(1..).unwrap_or_default();
    [servers.as_bytes(), rest].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_no_rust_in_them() {
        for (text, plain) in [
            (
                "At most [`MAX_CENTER`] scales.",
                "At most `MAX_CENTER` scales.",
            ),
            ("[`Norm`](super::Norm), then [`a::B`].", "`Norm`, then `B`."),
            ("Of a report.\n\n```\nassert!(true);\n```", "Of a report."),
            ("`x` in [0, 1]", "`x` in [0, 1]"),
        ] {
            assert_eq!(plain_description(text), plain);
        }
    }
}
