//! Shared parts of the OpenAPI descriptions: binary bodies, error responses, security schemes, and the document without
//! paths.

use eigenveil_shared::api::{PROBLEM_MEDIA_TYPE, Problem};
use utoipa::{
    IntoResponses, Modify, OpenApi, PartialSchema, ToSchema,
    openapi::{
        RefOr, Response,
        content::ContentBuilder,
        response::ResponseBuilder,
        schema::{KnownFormat, ObjectBuilder, Ref, Schema, SchemaFormat, Type},
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

pub(crate) struct Binary;

impl PartialSchema for Binary {
    fn schema() -> RefOr<Schema> {
        let bytes = ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
        Schema::Object(bytes.build()).into()
    }
}

impl ToSchema for Binary {}

pub(crate) struct ErrorResponses;

impl IntoResponses for ErrorResponses {
    fn responses() -> std::collections::BTreeMap<String, RefOr<Response>> {
        let schema = Ref::from_schema_name("Problem");
        let problem = ResponseBuilder::new()
            .description("A problem document (RFC 9457)")
            .content(
                PROBLEM_MEDIA_TYPE,
                ContentBuilder::new().schema(Some(schema)).build(),
            )
            .build();
        [("default".to_owned(), problem.into())].into()
    }
}

struct TokenSchemes;

impl Modify for TokenSchemes {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for (name, description) in [
            (
                "operator",
                "The operator token: `operator.token` in the data directory",
            ),
            (
                "analyst",
                "An analyst token, created by the operator: reads estimates, of one study or of all",
            ),
        ] {
            let scheme = HttpBuilder::new()
                .scheme(HttpAuthScheme::Bearer)
                .description(Some(description))
                .build();
            components.add_security_scheme(name, SecurityScheme::Http(scheme));
        }
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Eigenveil",
        description = "Principal components of data that never leaves its owners. docs/protocol.md describes the binary layouts and what the responses promise.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(Problem)),
    modifiers(&TokenSchemes),
)]
struct BaseDocument;

pub(crate) fn base_document() -> utoipa::openapi::OpenApi {
    BaseDocument::openapi()
}
