//! The classes of errors of the standard library and of other crates.

use std::error::Error;
use std::io;

#[cfg(any(test, feature = "hyper", feature = "reqwest", feature = "sqlx", feature = "tonic"))]
use crate::Class;
use crate::{ClassMap, Classify, Failure};

impl Classify for io::Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        classes.io(self.kind()).into()
    }
}

macro_rules! permanent {
    ($($error:ty),+) => {$(
        impl Classify for $error {
            fn classify(&self, _: &ClassMap) -> Failure {
                Failure::permanent()
            }
        }
    )+};
}

permanent!(
    core::convert::Infallible,
    core::fmt::Error,
    core::net::AddrParseError,
    core::num::ParseFloatError,
    core::num::ParseIntError,
    core::str::Utf8Error,
    std::string::FromUtf8Error
);

/// An error of unknown type has the class of the first known type in its chain of sources. Without one it is permanent.
impl Classify for dyn Error + 'static {
    fn classify(&self, classes: &ClassMap) -> Failure {
        let mut cause = Some(self);
        while let Some(error) = cause {
            if let Some(failure) = known(error, classes) {
                return failure;
            }
            cause = error.source();
        }
        Failure::permanent()
    }
}

impl Classify for dyn Error + Send + Sync + 'static {
    fn classify(&self, classes: &ClassMap) -> Failure {
        let error: &(dyn Error + 'static) = self;
        error.classify(classes)
    }
}

fn known(error: &(dyn Error + 'static), classes: &ClassMap) -> Option<Failure> {
    fn of<E: Classify + Error + 'static>(
        error: &(dyn Error + 'static),
        classes: &ClassMap,
    ) -> Option<Failure> {
        error.downcast_ref::<E>().map(|error| error.classify(classes))
    }
    let found = of::<io::Error>(error, classes);
    #[cfg(feature = "hyper")]
    let found = found
        .or_else(|| of::<hyper_util::client::legacy::Error>(error, classes))
        .or_else(|| of::<hyper::Error>(error, classes));
    #[cfg(feature = "reqwest")]
    let found = found.or_else(|| of::<reqwest::Error>(error, classes));
    #[cfg(feature = "sqlx")]
    let found = found.or_else(|| of::<sqlx_core::Error>(error, classes));
    #[cfg(feature = "tonic")]
    let found = found.or_else(|| of::<tonic::Status>(error, classes));
    found
}

/// The request may be repeated, as far as its error can tell: judge the response where the method matters.
#[cfg(feature = "reqwest")]
impl Classify for reqwest::Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        if self.is_builder() {
            return Failure::permanent().local();
        }
        match self.status() {
            Some(status) => {
                classes.http(status.as_u16(), crate::Replay::Safe).unwrap_or(Class::Permanent).into()
            }
            None if self.is_redirect() || self.is_decode() => Failure::permanent(),
            None if self.is_timeout() => Class::Timeout.into(),
            None => Failure::transient(),
        }
    }
}

#[cfg(feature = "hyper")]
impl Classify for hyper::Error {
    fn classify(&self, _: &ClassMap) -> Failure {
        match self {
            error if error.is_user() => Failure::permanent().local(),
            error if error.is_parse() => Failure::permanent(),
            error if error.is_timeout() => Class::Timeout.into(),
            _ => Failure::transient(),
        }
    }
}

#[cfg(feature = "hyper")]
impl Classify for hyper_util::client::legacy::Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        if self.is_connect() {
            return Failure::transient();
        }
        // The client keeps the reason as its source.
        self.source().map_or(Failure::transient(), |source| source.classify(classes))
    }
}

#[cfg(feature = "sqlx")]
impl Classify for sqlx_core::Error {
    fn classify(&self, classes: &ClassMap) -> Failure {
        match self {
            Self::Database(error) => {
                error.code().map_or(Failure::permanent(), |code| of_code(&code, classes))
            }
            Self::Io(_) | Self::Tls(_) | Self::Protocol(_) | Self::PoolTimedOut | Self::WorkerCrashed => {
                Failure::transient()
            }
            _ => Failure::permanent(),
        }
    }
}

/// Returns the class of a database's code. A SQLSTATE has five characters; SQLite's codes are numbers whose low byte is the
/// primary code.
#[cfg(feature = "sqlx")]
fn of_code(code: &str, classes: &ClassMap) -> Failure {
    const BUSY: u32 = 5;
    const LOCKED: u32 = 6;
    const CONSTRAINT_UNIQUE: u32 = 2067;
    const CONSTRAINT_PRIMARY_KEY: u32 = 1555;
    if code.len() == 5 && !code.starts_with("00") {
        return classes.sqlstate(code).into();
    }
    match code.parse::<u32>() {
        Ok(code) if [BUSY, LOCKED].contains(&(code & 0xff)) => Failure::new(Class::Contended),
        Ok(CONSTRAINT_UNIQUE | CONSTRAINT_PRIMARY_KEY) => Failure::new(Class::Conflict),
        _ => Failure::permanent(),
    }
}

#[cfg(feature = "tonic")]
impl Classify for tonic::Status {
    /// A server may ask for a wait by `grpc-retry-pushback-ms`, and forbid a retry by a negative value.
    fn classify(&self, classes: &ClassMap) -> Failure {
        let code = crate::Grpc::ALL.into_iter().find(|code| *code as i32 == self.code() as i32);
        let class = code.and_then(|code| classes.grpc(code)).unwrap_or(Class::Permanent);
        let asked = self.metadata().get("grpc-retry-pushback-ms").and_then(|value| value.to_str().ok());
        match asked.map(|text| text.parse::<u64>().map(core::time::Duration::from_millis)) {
            None => class.into(),
            Some(Ok(wait)) => Failure::new(class).with_retry_after(wait),
            Some(Err(_)) => Failure::new(class).not_repeatable(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boxed_error_has_the_class_of_the_first_known_source() {
        #[derive(Debug, thiserror::Error)]
        #[error("the page could not be read")]
        struct Outer(#[source] io::Error);

        let class = |error: Box<dyn Error + Send + Sync>| error.classify(&ClassMap::new()).class();
        assert_eq!(class(Outer(io::ErrorKind::ConnectionReset.into()).into()), Class::Transient);
        assert_eq!(class(Outer(io::ErrorKind::NotFound.into()).into()), Class::Permanent);
        assert_eq!(class("unknown".into()), Class::Permanent, "no error is retried by accident");
    }

    #[cfg(feature = "sqlx")]
    #[test]
    fn lock_timeouts_deadlocks_and_restarts_are_transient() {
        let class = |code: &str| of_code(code, &ClassMap::new()).class();
        let contended = ["40001", "40P01", "55P03", "5", "517", "6", "261"];
        assert!(contended.into_iter().all(|code| class(code) == Class::Contended));
        assert!(["57P01", "57P03", "08006"].into_iter().all(|code| class(code) == Class::Transient));
        assert!(["23505", "2067"].into_iter().all(|code| class(code) == Class::Conflict));
        assert!(
            ["42P01", "22003", "1", "19", "00000"].into_iter().all(|code| class(code) == Class::Permanent)
        );
        let pool = sqlx_core::Error::PoolTimedOut;
        assert_eq!(pool.classify(&ClassMap::new()).class(), Class::Transient);
    }

    #[cfg(feature = "tonic")]
    #[test]
    fn a_grpc_server_may_push_back() {
        let failure = |pushback: &str| {
            let mut status = tonic::Status::unavailable("busy");
            status.metadata_mut().insert("grpc-retry-pushback-ms", pushback.parse().unwrap());
            status.classify(&ClassMap::new())
        };
        assert_eq!(failure("250").retry_after(), Some(core::time::Duration::from_millis(250)));
        assert!(!failure("-1").is_repeatable());
        assert_eq!(tonic::Status::not_found("x").classify(&ClassMap::new()).class(), Class::Permanent);
        assert_eq!(tonic::Status::unavailable("x").classify(&ClassMap::new()).class(), Class::Transient);
    }
}
