//! The answer in a sentence.

use super::rounded;
use crate::Row;

/// Who was done first and who called least, with the most clients; `None` if there is nothing to compare.
pub fn answer(rows: &[Row]) -> Option<String> {
    let most = rows.iter().map(|row| row.clients).max()?;
    let largest = || rows.iter().filter(|row| row.clients == most);
    if largest().count() < 2 {
        return None;
    }
    let fastest = largest().min_by(|a, b| a.time_ms.mean.total_cmp(&b.time_ms.mean))?;
    let fewest = largest().min_by(|a, b| a.calls.mean.total_cmp(&b.calls.mean))?;
    let figures =
        |row: &Row| format!("{} s and {} calls", rounded(row.time_ms.mean / 1000.0), rounded(row.calls.mean));
    let (first, fewest_calls) = (&fastest.policy, &fewest.policy);
    Some(if first == fewest_calls {
        format!("With {most} clients {first} is done first and calls least: {}.", figures(fastest))
    } else {
        let (fast, few) = (figures(fastest), figures(fewest));
        format!("With {most} clients {first} is done first: {fast}. {fewest_calls} calls least: {few}.")
    })
}
