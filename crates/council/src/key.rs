//! What signatures of councils are for.

/// The context of all signatures of councils: one made for something else is worth nothing here.
pub(crate) const CONTEXT: &[u8] = b"holdoff council";
