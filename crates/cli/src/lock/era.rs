//! `holdoff lock raise-era`

use std::io::Write;

use super::Desk;
use crate::failure::Failure;

pub(super) async fn run(desk: &Desk) -> Result<(), Failure> {
    let era = desk.keeper.raise_era().await?;
    let mut out = anstream::stdout();
    if desk.json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "era": era }))?);
    }
    Ok(writeln!(out, "era {era} begins: every token from now on is above all before")?)
}
