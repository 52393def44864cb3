//! Reports of a plan's rows: tables, charts and one complete page.
//!
//! Pure: text in, text out. The caller decides where the text goes.

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
