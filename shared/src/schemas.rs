//! Schemas of what writes its JSON by hand.

use std::borrow::Cow;

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr,
        schema::{KnownFormat, Object, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type},
    },
};

use crate::{about::Day, api::Lambda, error::ErrorCode, estimate::Rank};

/// One of these texts.
fn words(words: impl IntoIterator<Item = &'static str>) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(words))
        .build()
}

impl PartialSchema for ErrorCode {
    fn schema() -> RefOr<Schema> {
        let codes = ErrorCode::ALL.iter().map(|code| code.as_str());
        Schema::Object(words(codes)).into()
    }
}

impl ToSchema for ErrorCode {
    fn name() -> Cow<'static, str> {
        "ErrorCode".into()
    }
}

impl PartialSchema for Day {
    fn schema() -> RefOr<Schema> {
        let date = ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Date)));
        Schema::Object(date.build()).into()
    }
}

impl ToSchema for Day {
    fn name() -> Cow<'static, str> {
        "Day".into()
    }
}

impl PartialSchema for Rank {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1));
        let either = OneOfBuilder::new().item(number).item(words(["auto"]));
        Schema::OneOf(either.build()).into()
    }
}

impl ToSchema for Rank {
    fn name() -> Cow<'static, str> {
        "Rank".into()
    }
}

impl PartialSchema for Lambda {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(0));
        let words = words(["auto", "cv", "path"]);
        Schema::OneOf(OneOfBuilder::new().item(number).item(words).build()).into()
    }
}

impl ToSchema for Lambda {
    fn name() -> Cow<'static, str> {
        "Lambda".into()
    }
}
