//! What the pages share: their frame, style and errors, who is asking, and what is rendered once for many.

pub(super) mod assets;
pub(super) mod error;
pub(super) mod images;
pub(super) mod layout;
pub(super) mod render_cache;
pub(super) mod state;
pub(super) mod visitor;
