//! The OpenAPI document, made of the handlers that are served.

use std::{collections::BTreeSet, sync::LazyLock};

use axum::{body::Bytes, http::header, response::IntoResponse};
use serde_json::Value;

/// The OpenAPI document of [`router`](crate::router), which a server has at `/openapi.json`.
///
/// ```
/// let document = eigenveil_server::openapi();
/// assert!(document["paths"]["/v1/studies"]["post"].is_object());
/// ```
pub fn openapi() -> Value {
    // A document is texts, numbers and maps of them: writing it cannot fail.
    let mut document = serde_json::to_value(super::routes().into_openapi()).unwrap_or_default();
    let mut parts = BTreeSet::new();
    tidy(&mut document, &mut parts);
    allow_extra_properties(&mut document, parts);
    document
}

/// Cuts the examples in Rust off descriptions; what has to hold together with other schemas cannot refuse the keys
/// that those allow. `parts` are such schemas with a name.
fn tidy(value: &mut Value, parts: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description")
                && let Some((before, _)) = text.split_once("\n\n```")
            {
                *text = before.to_owned();
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
            map.values_mut().for_each(|value| tidy(value, parts));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| tidy(value, parts)),
        _ => {}
    }
}

/// Lets the schemas of these names, and what they stand for, have other keys.
fn allow_extra_properties(document: &mut Value, mut names: BTreeSet<String>) {
    while let Some(name) = names.pop_first() {
        let schema = &mut document["components"]["schemas"][name.as_str()];
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("additionalProperties");
            names.extend(reference(schema));
        }
    }
}

/// The name that a schema stands for.
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
pub(super) async fn document() -> impl IntoResponse {
    static DOCUMENT: LazyLock<Bytes> =
        LazyLock::new(|| serde_json::to_vec(&openapi()).unwrap_or_default().into());
    (
        [(header::CONTENT_TYPE, "application/json")],
        DOCUMENT.clone(),
    )
}
