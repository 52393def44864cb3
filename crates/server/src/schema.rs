//! Schemas of other crates' values in the API's document.

use holdoff_policy::Class;
use holdoff_work::{AttemptOutcome, DelaySource, FailureReason, StepState, TaskState};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{RefOr, schema::SchemaType};
use utoipa::{PartialSchema, ToSchema};

/// The pattern of a UUID in the API.
pub(crate) const UUID: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";

fn text(about: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::new(Type::String)).description(Some(about))
}

fn one_of(about: &str, words: impl IntoIterator<Item = &'static str>) -> ObjectBuilder {
    text(about).enum_values(Some(words.into_iter().collect::<Vec<_>>()))
}

/// Defines a named schema in the document.
macro_rules! written {
    ($($name:ident as $called:literal: $schema:expr;)*) => {$(
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let object: ObjectBuilder = $schema;
                object.into()
            }
        }

        impl ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                $called.into()
            }
        }
    )*};
}

written! {
    StepStateWord as "StepState": one_of("The state of a step.", StepState::ALL.map(StepState::name));
    TaskStateWord as "TaskState": one_of(
        "The state of a task, derived from its steps.",
        [TaskState::Running, TaskState::Succeeded, TaskState::Failed, TaskState::Cancelled].map(TaskState::name),
    );
    OutcomeWord as "AttemptOutcome": one_of("The outcome of an attempt.", AttemptOutcome::ALL.map(AttemptOutcome::name));
    FailureReasonWord as "FailureReason": one_of("Why a step failed finally.", FailureReason::ALL.map(FailureReason::name));
    DelaySourceWord as "DelaySource": one_of("What determined a delay.", DelaySource::ALL.map(DelaySource::name));
    ClassWord as "Class": one_of("The class of a failure.", Class::ALL.map(Class::name));
    TaskIdText as "TaskId": text("The id of a task: a UUID.").pattern(Some(UUID)).format(Some(uuid()));
    StepIdText as "StepId": text("The id of a step: its task and its number, `TASK/NUMBER`.")
        .pattern(Some("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,10}$"));
    MomentText as "Moment": text("A time by the store's clock.")
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    TokenText as "FencingToken": text("A fencing token in decimal digits: a JSON number would be rounded above 2^53.")
        .pattern(Some("^(0|[1-9][0-9]{0,18})$"))
        .examples(["1763500000000000"]);
    DurationText as "Duration": text("A duration such as `250ms`, `5s`, `1m 30s` or `2h`.")
        .pattern(Some("^[0-9]{1,6}(us|ms|s|m|h|d)( [0-9]{1,6}(us|ms|s|m|h|d)){0,3}$"))
        .examples(["5s"]);
}

fn uuid() -> SchemaFormat {
    SchemaFormat::Custom("uuid".to_owned())
}
