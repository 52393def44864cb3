//! Confirmation of actions that cannot be undone.

use std::io::{BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Asks the user to confirm an action. Without a terminal it fails and names `--yes`.
pub(crate) fn is_wanted(what: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(format!("this would {what}; say --yes to do it")));
    }
    let mut err = anstream::stderr();
    write!(err, "This will {what}. Go on? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
