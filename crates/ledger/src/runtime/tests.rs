//! Nodes as they run, over loopback and on real files.

mod cluster;
mod far_behind;
mod learner;
mod moving;
mod storing;
mod story;
mod strangers;
