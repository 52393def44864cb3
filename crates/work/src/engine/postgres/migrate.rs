//! The migrations of the schema.

use holdoff_sql::{Component, Migration};

use crate::next_due;

pub(super) const COMPONENT: Component = Component {
    table: "holdoff.migrations",
    migrations: &[
        Migration { version: 1, breaks_before: 1, sql: include_str!("schema.sql") },
        Migration { version: 2, breaks_before: 1, sql: next_due::POSTGRES },
        Migration { version: 3, breaks_before: 1, sql: include_str!("versions.sql") },
        Migration { version: 4, breaks_before: 1, sql: include_str!("workers.sql") },
        Migration { version: 5, breaks_before: 1, sql: include_str!("look.sql") },
    ],
};
