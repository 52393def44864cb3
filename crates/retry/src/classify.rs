//! The classification of errors.

#[cfg(feature = "http")]
use std::time::Duration;

use holdoff_policy::{ClassMap, Failure};
#[cfg(feature = "http")]
use http::header::{DATE, HeaderMap, RETRY_AFTER};

/// An error type that determines its failure class.
///
/// ```
/// use holdoff_policy::{Class, ClassMap, Failure};
/// use holdoff_retry::Classify;
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
    note = "implement `holdoff_retry::Classify` for it (`holdoff::retry::Classify` through the facade), or judge it at \
            the call: `Retry::new(&policy).classify(|error| …).run(call)`, with a closure that returns a \
            `Failure` such as `Failure::transient()` or `Failure::permanent()`"
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

impl<E: Classify + ?Sized> Classify for Box<E> {
    fn classify(&self, classes: &ClassMap) -> Failure {
        (**self).classify(classes)
    }
}

impl Classify for std::io::Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        classes.io(self.kind()).into()
    }
}

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
