//! Nodes as they run, over loopback and on real files.

mod cluster;
mod story;
