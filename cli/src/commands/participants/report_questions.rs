//! What a file of rows would answer to a preparation, told to its owner only.

use eigenveil_shared::preparation::PreparationParams;

use super::report_persons::Persons;
use crate::{error::in_flags, output};

/// Tells the file's owner, whatever else the command prints: how many rows there are, what cannot be read, and which
/// cells spoil the constants.
pub(super) fn tell(persons: &Persons, params: &PreparationParams) {
    let table = &persons.table;
    let unreadable = table.unreadable(true);
    let unreadable = unreadable.map(|why| format!("what cannot be read: {}", in_flags(&why)));
    let notices = params.cell_notices(table.values());
    let rows = format!("rows: {}", table.len());
    for line in [rows].into_iter().chain(unreadable).chain(notices) {
        output::print_error_line(&format!("shown only to you: {line}"));
    }
}
