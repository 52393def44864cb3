//! Reports of a plan's rows: tables, charts and one complete page.
//!
//! Pure: text in, text out. The caller decides where the text goes.

mod charts;
mod page;
mod table;

pub use charts::{NamedChart, charts};
pub use page::{answer, page};
pub use table::{Column, columns, csv, ranks_csv, rounded};
