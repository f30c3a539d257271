//! Short programs to copy
