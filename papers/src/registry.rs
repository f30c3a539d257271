//! All exhibits, in the order of the papers.

use eigenveil_shared::{Error, Result};

use crate::{exhibit::Exhibit, hardt_price, liu, maunu, own, shang, wang_xu};

/// Every figure and table.
pub const ALL: &[Exhibit] = &[
    wang_xu::FIGURE_1,
    wang_xu::FIGURE_2,
    wang_xu::FIGURE_3,
    wang_xu::FIGURE_4,
    wang_xu::TABLE_1,
    wang_xu::TABLE_2,
    maunu::FIGURE_1,
    maunu::FIGURE_2,
    maunu::FIGURE_3,
    maunu::FIGURE_4,
    maunu::FIGURE_5,
    maunu::FIGURE_6,
    maunu::FIGURE_7,
    maunu::FIGURE_8,
    maunu::FIGURE_9,
    maunu::FIGURE_10,
    shang::TABLE_2,
    shang::FIGURE_1,
    liu::FIGURE_1,
    liu::EXAMPLE_4_1,
    hardt_price::FIGURE_1,
    hardt_price::FIGURE_2,
    hardt_price::FIGURE_3,
    own::CENTRAL_VS_LOCAL,
    own::FLOOR,
    own::FLOOR_DIGITS,
    own::PURE_NOISE,
    own::EXPECTED_ERROR,
    own::AUTO,
    own::MOMENT_COVERAGE,
    own::KAPPA_GRID,
];

/// Finds an exhibit by name.
///
/// # Errors
/// `invalid-request` if there is none; the message lists the valid names.
pub fn find(id: &str) -> Result<&'static Exhibit> {
    let found = ALL.iter().find(|exhibit| exhibit.id == id);
    found.ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|exhibit| exhibit.id).collect();
        Error::invalid_request(format!(
            "there is no exhibit {id:?}; use one of {}",
            names.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Captions of the papers without an exhibit.
    const NOT_COVERED: [&str; 2] = ["shang Table 1", "shang Table 3"];

    #[test]
    fn every_caption_of_the_papers_has_an_exhibit_except_the_named_ones() {
        let name = |caption: &str| caption.to_lowercase().replace(' ', "-");
        let captions = include_str!("../items.txt").lines();
        let missing: Vec<&str> = captions.filter(|at| find(&name(at)).is_err()).collect();
        assert_eq!(missing, NOT_COVERED);
    }

    #[test]
    fn names_are_unique() {
        for (place, exhibit) in ALL.iter().enumerate() {
            assert_eq!(find(exhibit.id).unwrap().item, exhibit.item);
            assert!(ALL[..place].iter().all(|other| other.id != exhibit.id));
            assert!(!exhibit.measures.is_empty() && !exhibit.key_columns.is_empty());
        }
        let error = find("wang-xu-table-9").err().unwrap();
        assert!(error.detail().contains("wang-xu-table-2"), "{error}");
    }
}
