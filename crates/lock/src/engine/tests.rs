//! What both engines on SQL promise, asked on real files and a real server, through two doors: two pools that know
//! nothing of each other, as two processes would.

mod alone;
mod crash;
mod crowd;
mod place;
