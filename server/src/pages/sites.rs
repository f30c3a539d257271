//! For sites: what their report is, what is stored of it, and how to send it.

use eigenveil_estimation::format::with_thousands;
use eigenveil_shared::site_study::SiteStudyParams;
use eigenveil_store::Study;
use maud::{Markup, html};

use super::visitor::Visitor;

pub(super) fn sent_and_stored(study: &Study, params: &SiteStudyParams) -> Markup {
    let unit = params.terms().unit();
    html! {
        section aria-labelledby="h-sent" {
            h2 #h-sent { "What is sent" }
            ul {
                li { "One report of " strong { (with_thousands(study.privacy().report_bytes as u64)) " bytes" } ", made at the site: the sum of the products of the numbers in each row, over all rows that can be used, and the number of " (unit) ", with random noise added once to each. No row leaves the site." }
                li { "It has an identifier, so that it is counted once. The identifier shows when the report was made." }
                li { "It comes with a one-time token, to which the server has the name of the site." }
            }
        }
        section aria-labelledby="h-stored" {
            h2 #h-stored { "What is stored" }
            ul {
                li #kept { "The report as it came, under the name of the site: " strong { "sites are not anonymous" } ". Whoever reads the server's database sees which site sent what, and when. What that says of one " (unit.trim_end_matches('s')) " is bounded as above." }
                li { "The identifier, in a separate list, so that a repeated report is not counted twice." }
                li { "A hash of the token, the site's name and its largest number of " (unit) ", and whether the token was used." }
                li { "No address, and nothing else about the site." }
            }
        }
    }
}

pub(super) fn tokens() -> Markup {
    html! {
        section #tokens aria-labelledby="h-tokens" {
            h2 #h-tokens { "You need a token of your site" }
            ul {
                li { "A token has 64 hexadecimal digits and is valid for one report. Whoever runs the study creates it, with the name of your site and the largest number of rows that it may have, and gives it to you. Your program shows both before anything is sent." }
                li { "Anybody who has it can report in your name: keep it secret until your report has arrived." }
                li { "If the response gets lost, send the same report again: it is counted once, and the token is not needed twice." }
            }
        }
    }
}

pub(super) fn command(visitor: &Visitor, study: &Study) -> Markup {
    let address = visitor.address();
    let server = address.unwrap_or("SERVER");
    let person = match study
        .params()
        .sites()
        .map(|params| params.terms().rows_per_person)
    {
        Ok(Some(_)) => " --person COLUMN",
        _ => "",
    };
    let report = format!(
        "eigenveil report --server {server} --study {} --fingerprint {} --site NAME --rows TABLE.csv --header yes{person} --tokens TOKEN.txt",
        study.id(),
        study.fingerprint()
    );
    html! {
        section aria-labelledby="h-take-part" {
            h2 #h-take-part { "Take part" }
            p { "With the program, where the table is:" }
            pre tabindex="0" { code #report-command { (report) } }
            p { "Replace:" }
            ul {
                @if address.is_none() { li { code { "SERVER" } " by the address of this page up to the first single slash, such as https://study.example." } }
                li { code { "NAME" } " by the name of your site, " code { "TABLE.csv" } " by your table, with one line for each row, and " code { "TOKEN.txt" } " by a file with your token in it." }
                @if !person.is_empty() { li { code { "COLUMN" } " by the name of the column that says whose each row is; it is not sent." } }
            }
        }
    }
}
