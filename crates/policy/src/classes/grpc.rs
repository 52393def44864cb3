//! gRPC status codes.

use crate::Class;

macro_rules! codes {
    ($($number:literal $variant:ident $name:literal $meaning:literal $class:expr;)+) => {
        /// A gRPC status code.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Grpc {
            $(#[doc = $meaning] $variant = $number,)+
        }

        impl Grpc {
            /// Every code, in numerical order.
            pub const ALL: [Self; 17] = [$(Self::$variant),+];

            /// Returns the code's name in capitals, as in the gRPC documentation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        pub(super) const fn class(code: Grpc) -> Option<Class> {
            match code { $(Grpc::$variant => $class),+ }
        }
    };
}

codes! {
    0 Ok "OK" "Not an error." None;
    1 Cancelled "CANCELLED" "The caller cancelled." Some(Class::Permanent);
    2 Unknown "UNKNOWN" "An error of an unknown kind." Some(Class::Permanent);
    3 InvalidArgument "INVALID_ARGUMENT" "The request is wrong." Some(Class::Permanent);
    4 DeadlineExceeded "DEADLINE_EXCEEDED" "No answer in time." Some(Class::Timeout);
    5 NotFound "NOT_FOUND" "Not there." Some(Class::Permanent);
    6 AlreadyExists "ALREADY_EXISTS" "There already." Some(Class::Conflict);
    7 PermissionDenied "PERMISSION_DENIED" "Not allowed." Some(Class::Permanent);
    8 ResourceExhausted "RESOURCE_EXHAUSTED" "A quota or rate limit." Some(Class::RateLimited);
    9 FailedPrecondition "FAILED_PRECONDITION" "The system is not in the state for it." Some(Class::Permanent);
    10 Aborted "ABORTED" "A transaction or sequencer lost a race." Some(Class::Contended);
    11 OutOfRange "OUT_OF_RANGE" "Past the end." Some(Class::Permanent);
    12 Unimplemented "UNIMPLEMENTED" "Not offered here." Some(Class::Permanent);
    13 Internal "INTERNAL" "The server broke an invariant." Some(Class::Permanent);
    14 Unavailable "UNAVAILABLE" "The service is not there at the moment." Some(Class::Transient);
    15 DataLoss "DATA_LOSS" "Lost beyond recovery." Some(Class::Permanent);
    16 Unauthenticated "UNAUTHENTICATED" "The credentials were refused." Some(Class::Unauthorized);
}

impl Grpc {
    /// Returns the code with this number.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the code with this name in capitals.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_read_back() {
        for (number, code) in (0..).zip(Grpc::ALL) {
            assert_eq!(Grpc::from_number(number), Some(code));
            assert_eq!(Grpc::from_name(code.name()), Some(code));
        }
        assert_eq!(Grpc::from_number(17), None);
        assert_eq!(Grpc::from_number(-1), None);
    }
}
