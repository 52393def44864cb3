//! The signature context of councils.

/// The context of all signatures of councils. A signature that was made for another purpose is not valid here.
pub(crate) const CONTEXT: &[u8] = b"holdoff council";
