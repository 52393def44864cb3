//! What a plan's rows look like: tables, charts and one page with everything.
//!
//! Pure: text in, text out. Whoever calls decides where it goes.

mod answer;
mod charts;
mod csv;
mod page;
mod table;

pub use answer::answer;
pub use charts::{NamedChart, charts};
pub use csv::{csv, ranks_csv};
pub use page::page;
pub use table::{Column, columns, rounded};
