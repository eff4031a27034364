//! What must hold, each rule in a file of its own.

pub mod compacted;
pub mod dense;
pub mod lasting;
pub mod order;
pub mod watermark;
