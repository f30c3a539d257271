//! Any bytes as a row file: a table of its declared size, or an error; never a panic.
#![no_main]

use std::path::Path;

use eigenveil_tables::{ExpectedColumns, Header, Settings, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    let name = ["rows.npy", "rows.csv", "rows.libsvm", "rows.parquet"][usize::from(which % 4)];
    let settings = Settings {
        header: [Header::Auto, Header::No, Header::Yes][usize::from(which >> 6) % 3],
        ..Settings::default()
    };
    let wanted = (which & 4 != 0).then(|| ExpectedColumns {
        reports: which & 8 != 0,
        ..ExpectedColumns::study(usize::from(which >> 3) % 8, None)
    });
    if let Ok(table) = parse(Path::new(name), data, &settings, wanted.as_ref()) {
        assert!(wanted.is_none_or(|wanted| wanted.dimension == table.dimension()));
        if !table.is_empty() {
            let last = table.row(table.len() - 1);
            assert_eq!(last.values().len(), table.dimension());
        }
        let _ = table.check_usable(false);
    }
});
