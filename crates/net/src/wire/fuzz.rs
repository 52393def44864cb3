//! A million bad streams for the frame decoder.
