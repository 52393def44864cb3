//! The classification of errors.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::{ClassMap, Failure};

/// An error type that determines its failure class.
///
/// Implemented for `std::io::Error`, for errors of parsing, and for boxed errors, whose chain of sources is searched for a known
/// type. The features `hyper`, `reqwest`, `sqlx` and `tonic` implement it for the errors of these crates.
///
/// ```
/// use holdoff_policy::{Class, ClassMap, Classify, Failure};
/// use std::time::Duration;
///
/// enum ApiError {
///     Overloaded { retry_after: Duration },
///     NoSuchUser,
///     Io(std::io::Error),
/// }
///
/// impl Classify for ApiError {
///     fn classify(&self, classes: &ClassMap) -> Failure {
///         match self {
///             Self::Overloaded { retry_after } => {
///                 Failure::new(Class::RateLimited).with_retry_after(*retry_after)
///             }
///             Self::NoSuchUser => Failure::permanent(),
///             Self::Io(error) => error.classify(classes),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "holdoff does not know which errors of type `{Self}` may pass by themselves",
    label = "this error type has no failure class",
    note = "implement `holdoff_policy::Classify` for it (`holdoff::retry::Classify` through the facade), or judge it at \
            the call: `call.retry(&policy).when(|error| …)` with a closure that returns whether to retry, or `.classify(|error| …)` \
            with a closure that returns a `Class` or a `Failure`",
    note = "the features `reqwest`, `hyper`, `sqlx` and `tonic` implement it for the errors of these crates"
)]
pub trait Classify {
    /// Returns the failure class of this error, and the server's request to wait, if any.
    ///
    /// `classes` are the active tables, with the overrides of the policy file. Look up codes there.
    fn classify(&self, classes: &ClassMap) -> Failure;
}

impl<E: Classify + ?Sized> Classify for &E {
    fn classify(&self, classes: &ClassMap) -> Failure {
        (**self).classify(classes)
    }
}

impl<E: Classify + ?Sized> Classify for Arc<E> {
    fn classify(&self, classes: &ClassMap) -> Failure {
        (**self).classify(classes)
    }
}

impl<E: Classify + ?Sized> Classify for Box<E> {
    fn classify(&self, classes: &ClassMap) -> Failure {
        (**self).classify(classes)
    }
}
