//! The classification of errors.

#[cfg(feature = "http")]
use std::time::Duration;

use holdoff_policy::{ClassMap, Classify, Failure};
#[cfg(feature = "http")]
use http::header::{DATE, HeaderMap, RETRY_AFTER};

/// Classifies errors of one type: by [`Classify`], or by a closure given to
/// [`Retry::classify`](crate::Retry::classify).
pub trait Classifier<E> {
    /// Returns the failure class of this error, by the active tables.
    fn failure(&self, error: &E, classes: &ClassMap) -> Failure;
}

/// Classifies an error by its own [`Classify`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ByTrait;

impl<E: Classify> Classifier<E> for ByTrait {
    fn failure(&self, error: &E, classes: &ClassMap) -> Failure {
        error.classify(classes)
    }
}

impl<E, F: Fn(&E) -> Failure> Classifier<E> for F {
    fn failure(&self, error: &E, _: &ClassMap) -> Failure {
        self(error)
    }
}

/// Returns the wait that a response asks for with `Retry-After`, in either of its forms.
///
/// A date counts from the response's `Date`, or from this machine's clock if the response has none.
#[cfg(feature = "http")]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let value = text(RETRY_AFTER)?;
    holdoff_policy::retry_after_from_headers(value, text(DATE), wall())
}

/// Returns the wall-clock time, for responses without a `Date`.
#[cfg(feature = "http")]
#[expect(clippy::disallowed_methods, reason = "the only access to the wall clock")]
fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}
