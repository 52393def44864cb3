//! The classification of errors.

use holdoff_policy::{ClassMap, Failure};

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
