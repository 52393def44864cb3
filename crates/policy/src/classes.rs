//! Maps status codes and error kinds to failure classes.
//!
//! There is one table each for HTTP, gRPC, SQLSTATE and I/O errors. A policy file may override any row in its
//! `[classes]`; `holdoff policy classes` prints the active tables.

mod grpc;
mod http;
#[cfg(feature = "std")]
mod io;
mod sqlstate;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub use grpc::Grpc;
pub use http::Replay;

use crate::Class;

/// The [`Class`] of each code: the built-in tables and the overrides of a policy file.
///
/// ```
/// use holdoff_policy::{Class, ClassMap, Replay};
///
/// let classes = ClassMap::default();
/// assert_eq!(classes.http(503, Replay::Safe), Some(Class::Transient));
/// assert_eq!(classes.http(500, Replay::Unsafe), Some(Class::Permanent), "it may have happened");
/// assert_eq!(classes.http(200, Replay::Safe), None, "not a failure");
/// assert_eq!(classes.sqlstate("40001"), Class::Contended);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassMap {
    http: BTreeMap<u16, Class>,
    grpc: BTreeMap<Grpc, Class>,
    sqlstate: BTreeMap<String, Class>,
    #[cfg(feature = "std")]
    io: BTreeMap<&'static str, Class>,
}

/// One row of the printed table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassRow {
    /// `http`, `grpc`, `sqlstate` or `io`.
    pub kind: &'static str,
    /// The code or the kind of error.
    pub code: String,
    /// The name of the code.
    pub name: &'static str,
    /// The class if the call can be repeated safely.
    pub class: Class,
    /// The class if the call must not happen twice, where it differs.
    pub unsafe_class: Option<Class>,
    /// Whether the policy file overrides this row.
    pub overridden: bool,
}

impl ClassMap {
    /// Returns the built-in tables without overrides.
    pub const fn new() -> Self {
        Self {
            http: BTreeMap::new(),
            grpc: BTreeMap::new(),
            sqlstate: BTreeMap::new(),
            #[cfg(feature = "std")]
            io: BTreeMap::new(),
        }
    }

    /// Returns the class of an HTTP status; `None` if it is not a failure.
    pub fn http(&self, status: u16, replay: Replay) -> Option<Class> {
        self.http.get(&status).copied().or_else(|| http::class(status, replay))
    }

    /// Returns the class of a gRPC code; `None` for OK.
    pub fn grpc(&self, code: Grpc) -> Option<Class> {
        self.grpc.get(&code).copied().or_else(|| grpc::class(code))
    }

    /// Returns the class of an SQLSTATE; an override may name a whole class by its first two characters.
    pub fn sqlstate(&self, code: &str) -> Class {
        let whole_class = || self.sqlstate.get(code.get(..2)?);
        self.sqlstate.get(code).or_else(whole_class).copied().unwrap_or_else(|| sqlstate::class(code))
    }

    /// Returns the class of an I/O error.
    #[cfg(feature = "std")]
    pub fn io(&self, kind: std::io::ErrorKind) -> Class {
        let row = io::row_of(kind);
        self.io.get(row.name).copied().unwrap_or(row.class)
    }

    /// Overrides an HTTP status, for all methods.
    pub fn set_http(&mut self, status: u16, class: Class) {
        self.http.insert(status, class);
    }

    /// Overrides a gRPC code.
    pub fn set_grpc(&mut self, code: Grpc, class: Class) {
        self.grpc.insert(code, class);
    }

    /// Overrides an SQLSTATE, or a whole class of them by its two characters; returns `false` if the code is
    /// neither.
    pub fn set_sqlstate(&mut self, code: &str, class: Class) -> bool {
        let valid = sqlstate::is_valid(code);
        if valid {
            self.sqlstate.insert(code.to_string(), class);
        }
        valid
    }

    /// Overrides an I/O error by its name in the table; returns `false` if the table has no such name.
    #[cfg(feature = "std")]
    pub fn set_io(&mut self, name: &str, class: Class) -> bool {
        let row = io::ROWS.iter().find(|row| row.name == name);
        if let Some(row) = row {
            self.io.insert(row.name, class);
        }
        row.is_some()
    }

    /// Returns the names of the I/O errors in the table.
    #[cfg(feature = "std")]
    pub(crate) fn io_names() -> impl Iterator<Item = &'static str> {
        io::ROWS.iter().map(|row| row.name)
    }

    /// Returns the overrides, as `(kind, code, class)`.
    pub fn overrides(&self) -> Vec<(&'static str, String, Class)> {
        let http = self.http.iter().map(|(status, class)| ("http", status.to_string(), *class));
        let grpc = self.grpc.iter().map(|(code, class)| ("grpc", code.name().to_string(), *class));
        let sql = self.sqlstate.iter().map(|(code, class)| ("sqlstate", code.clone(), *class));
        let rows = http.chain(grpc).chain(sql);
        #[cfg(feature = "std")]
        let rows = rows.chain(self.io.iter().map(|(name, class)| ("io", (*name).to_string(), *class)));
        rows.collect()
    }

    /// Returns the whole active table.
    pub fn rows(&self) -> Vec<ClassRow> {
        let overrides = self.overrides();
        let mut rows = built_in();
        for (kind, code, class) in overrides {
            let at = rows.iter_mut().find(|row| row.kind == kind && row.code == code);
            if let Some(row) = at {
                *row = ClassRow { class, unsafe_class: None, overridden: true, ..row.clone() };
            } else {
                rows.push(ClassRow { kind, code, name: "", class, unsafe_class: None, overridden: true });
            }
        }
        // An override of a whole SQLSTATE class applies to every code in it.
        for row in rows.iter_mut().filter(|row| row.kind == "sqlstate") {
            let class = self.sqlstate(&row.code);
            row.overridden |= class != row.class;
            row.class = class;
        }
        rows.sort_by_key(|row| kind_order(row.kind));
        rows
    }
}

fn kind_order(kind: &str) -> usize {
    ["http", "grpc", "sqlstate", "io"].iter().position(|known| *known == kind).unwrap_or(usize::MAX)
}

fn built_in() -> Vec<ClassRow> {
    let row = |kind, code: String, name, class| ClassRow {
        kind,
        code,
        name,
        class,
        unsafe_class: None,
        overridden: false,
    };
    let http = http::ROWS.iter().map(|entry| ClassRow {
        unsafe_class: entry.once.filter(|once| *once != entry.class),
        ..row("http", entry.status.to_string(), entry.name, entry.class)
    });
    let grpc = Grpc::ALL
        .into_iter()
        .filter_map(|code| Some(row("grpc", code.name().to_string(), "", grpc::class(code)?)));
    let sql =
        sqlstate::ROWS.iter().map(|entry| row("sqlstate", entry.code.to_string(), entry.name, entry.class));
    let rows = http.chain(grpc).chain(sql);
    #[cfg(feature = "std")]
    let rows = rows.chain(io::ROWS.iter().map(|entry| row("io", entry.name.to_string(), "", entry.class)));
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_wins_and_shows_in_the_table() {
        let mut classes = ClassMap::default();
        classes.set_http(404, Class::Transient);
        classes.set_http(503, Class::RateLimited);
        assert!(classes.set_sqlstate("23", Class::Conflict));
        assert!(!classes.set_sqlstate("2350", Class::Conflict));
        assert_eq!(classes.http(404, Replay::Unsafe), Some(Class::Transient));
        assert_eq!(classes.sqlstate("23999"), Class::Conflict);
        let rows = classes.rows();
        let find = |code: &str| rows.iter().find(|row| row.code == code).unwrap();
        assert!(find("503").overridden && find("503").class == Class::RateLimited);
        assert!(find("404").overridden);
        assert!(!find("429").overridden);
    }

    #[test]
    fn every_row_agrees_with_the_lookup() {
        let mut classes = ClassMap::default();
        classes.set_sqlstate("40", Class::Permanent);
        classes.set_sqlstate("40001", Class::Timeout);
        for row in classes.rows() {
            let looked_up = match row.kind {
                "http" => classes.http(row.code.parse().unwrap(), Replay::Safe),
                "grpc" => classes.grpc(Grpc::from_name(&row.code).unwrap()),
                "sqlstate" => Some(classes.sqlstate(&row.code)),
                _ => continue,
            };
            assert_eq!(looked_up, Some(row.class), "{row:?}");
        }
    }
}
