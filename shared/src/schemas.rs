//! Schemas of what writes its JSON by hand.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{KnownFormat, Object, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type},
    },
};

use crate::{about::UtcDate, api::Lambda, error::ErrorCode, estimate::ComponentCount};

fn string_enum(words: impl IntoIterator<Item = &'static str>) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(words))
        .build()
}

impl PartialSchema for ErrorCode {
    fn schema() -> RefOr<Schema> {
        let codes = ErrorCode::ALL.iter().map(|code| code.as_str());
        Schema::Object(string_enum(codes)).into()
    }
}

impl ToSchema for ErrorCode {}

impl PartialSchema for UtcDate {
    fn schema() -> RefOr<Schema> {
        let date = ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Date)));
        Schema::Object(date.build()).into()
    }
}

impl ToSchema for UtcDate {}

impl PartialSchema for ComponentCount {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1));
        let either = OneOfBuilder::new().item(number).item(string_enum(["auto"]));
        Schema::OneOf(either.build()).into()
    }
}

impl ToSchema for ComponentCount {}

impl PartialSchema for Lambda {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(0));
        let words = string_enum(["auto", "cv", "path"]);
        Schema::OneOf(OneOfBuilder::new().item(number).item(words).build()).into()
    }
}

impl ToSchema for Lambda {}
