//! The numbers of a figure as an HTML table.

use crate::drawing::svg::escape;

/// A small HTML table with the numbers of a figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataTable {
    /// Caption.
    pub caption: String,
    /// Names of the columns.
    pub headers: Vec<String>,
    /// Cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl DataTable {
    pub(crate) fn new<H: Into<String>>(
        caption: &str,
        headers: impl IntoIterator<Item = H>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        Self {
            caption: caption.to_owned(),
            headers: headers.into_iter().map(Into::into).collect(),
            rows: rows.into_iter().collect(),
        }
    }

    /// A `<table class="ev-table">`; the first cell of each row is its header.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut html = format!(
            "<table class=\"ev-table\"><caption>{}</caption><thead><tr>",
            escape(&self.caption)
        );
        for header in &self.headers {
            html.push_str(&format!("<th scope=\"col\">{}</th>", escape(header)));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (i, cell) in row.iter().enumerate() {
                let cell = escape(cell);
                html.push_str(&match i {
                    0 => format!("<th scope=\"row\">{cell}</th>"),
                    _ => format!("<td>{cell}</td>"),
                });
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table>\n");
        html
    }
}
