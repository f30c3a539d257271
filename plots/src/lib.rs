//! Pictures of estimates and experiments as self-contained SVG
