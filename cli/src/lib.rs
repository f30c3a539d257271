//! The eigenveil command
