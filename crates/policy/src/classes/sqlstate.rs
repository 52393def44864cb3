//! SQLSTATE codes.

use crate::Class;

/// A code, or the first two characters of a class of codes, and its failure class.
pub(super) struct Row {
    pub(super) code: &'static str,
    pub(super) name: &'static str,
    pub(super) class: Class,
}

const fn row(code: &'static str, name: &'static str, class: Class) -> Row {
    Row { code, name, class }
}

pub(super) const ROWS: &[Row] = &[
    row("08", "connection exception", Class::Transient),
    row("08004", "server rejected the connection", Class::Permanent),
    row("08P01", "protocol violation", Class::Permanent),
    row("23505", "unique violation", Class::Conflict),
    row("23P01", "exclusion violation", Class::Conflict),
    row("25006", "read-only transaction (a failover)", Class::Transient),
    row("28", "invalid authorization", Class::Unauthorized),
    row("40", "transaction rollback", Class::Contended),
    row("40001", "serialization failure", Class::Contended),
    row("40003", "statement completion unknown", Class::Timeout),
    row("40P01", "deadlock detected", Class::Contended),
    row("53", "insufficient resources", Class::Transient),
    row("53300", "too many connections", Class::RateLimited),
    row("55006", "object in use", Class::Contended),
    row("55P03", "lock not available", Class::Contended),
    row("57014", "query canceled", Class::Timeout),
    row("57P01", "admin shutdown", Class::Transient),
    row("57P02", "crash shutdown", Class::Transient),
    row("57P03", "cannot connect now", Class::Transient),
    row("57P05", "idle session timeout", Class::Transient),
    row("58000", "system error", Class::Transient),
    row("58030", "io error", Class::Transient),
];

/// Returns the class of a code; codes outside the table are permanent.
pub(super) fn class(code: &str) -> Class {
    let find = |wanted: &str| ROWS.iter().find(|row| row.code == wanted).map(|row| row.class);
    find(code).or_else(|| find(code.get(..2)?)).unwrap_or(Class::Permanent)
}

/// Returns whether this is a code of five characters or a class of two.
pub(super) fn is_valid(code: &str) -> bool {
    let characters = code.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    characters && matches!(code.len(), 2 | 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_codes_come_before_their_class() {
        assert_eq!(class("08006"), Class::Transient);
        assert_eq!(class("08P01"), Class::Permanent);
        assert_eq!(class("40P01"), Class::Contended);
        assert_eq!(class("57014"), Class::Timeout);
        assert_eq!(class("42601"), Class::Permanent, "a syntax error is permanent");
        assert_eq!(class(""), Class::Permanent);
        assert_eq!(class("4é0"), Class::Permanent);
    }
}
