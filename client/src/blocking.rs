//! The same without `async`.
