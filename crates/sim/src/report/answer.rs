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
    let (seconds, calls) = (rounded(fastest.time_ms.mean / 1000.0), rounded(fewest.calls.mean));
    let (first, second) = (&fastest.policy, &fewest.policy);
    Some(if first == second {
        format!(
            "With {most} clients {first} is done first, in {seconds} s, and with the fewest calls, {calls}."
        )
    } else {
        format!(
            "With {most} clients {first} is done first, in {seconds} s; {second} needs the fewest calls, {calls}."
        )
    })
}
