//! Whole-system tests
