//! What kind of failure an error is.

use holdoff_policy::{ClassMap, Failure};

/// An error that knows what kind of failure it is.
///
/// ```
/// use holdoff_policy::{Class, Failure};
/// use holdoff_retry::Classify;
/// use std::time::Duration;
///
/// enum ApiError {
///     Overloaded { retry_after: Duration },
///     NoSuchUser,
/// }
///
/// impl Classify for ApiError {
///     fn classify(&self) -> Failure {
///         match self {
///             Self::Overloaded { retry_after } => {
///                 Failure::new(Class::RateLimited).with_retry_after(*retry_after)
///             }
///             Self::NoSuchUser => Failure::permanent(),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "holdoff does not know which errors of type `{Self}` may pass by themselves",
    label = "this error type has no failure class",
    note = "implement `Classify` for it, or say it at the call: \
            `Retry::new(&policy).classify(|error| Failure::transient()).run(call)`"
)]
pub trait Classify {
    /// What kind of failure this is, and what the other side said about it.
    fn classify(&self) -> Failure;
}

impl<E: Classify + ?Sized> Classify for &E {
    fn classify(&self) -> Failure {
        (**self).classify()
    }
}

impl<E: Classify + ?Sized> Classify for Box<E> {
    fn classify(&self) -> Failure {
        (**self).classify()
    }
}

impl Classify for std::io::Error {
    fn classify(&self) -> Failure {
        ClassMap::default().io(self.kind()).into()
    }
}

/// Judges errors of one type: [`Classify`] itself, or a closure given to
/// [`Retry::classify`](crate::Retry::classify).
pub trait Classifier<E> {
    /// What kind of failure this error is.
    fn failure(&self, error: &E) -> Failure;
}

/// Judges an error by its own [`Classify`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ByTrait;

impl<E: Classify> Classifier<E> for ByTrait {
    fn failure(&self, error: &E) -> Failure {
        error.classify()
    }
}

impl<E, F: Fn(&E) -> Failure> Classifier<E> for F {
    fn failure(&self, error: &E) -> Failure {
        self(error)
    }
}
