//! The JSON representation of tasks, steps, locks, an acceptor and ledgers.

mod acceptor;
mod ledger;
mod lock;
mod step;
mod task;

pub(crate) use acceptor::{ShownAcceptor, ShownCouncil, show_acceptor, show_council};
pub(crate) use ledger::{
    ShownCommand, ShownEntry, ShownLedger, ShownResult, ShownValue, diff_lines, goal_text, highest, is_own,
    read_key, role,
};
pub use lock::{ShownHolder, ShownLock, show_lock};
pub(crate) use lock::{seconds, show_holder};
pub(crate) use step::{ShownAttempt, ShownStep, encode};
pub use task::{ShownTask, show};
