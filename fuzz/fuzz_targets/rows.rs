//! Any bytes as a row file: a table of the size it says, or an error, never a panic.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    let name = ["rows.npy", "rows.csv", "rows.libsvm"][usize::from(which % 3)];
    let dimension = (which & 4 != 0).then_some(usize::from(which >> 3));
    if let Ok(table) = eigenveil::rows::parse(Path::new(name), data, dimension) {
        assert!(dimension.is_none_or(|p| p == table.dimension()));
        if !table.is_empty() {
            let last = table.row(table.len() - 1);
            assert_eq!(last.values().len(), table.dimension());
        }
        let _ = table.first_not_finite();
    }
});
