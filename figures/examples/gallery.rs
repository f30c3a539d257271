//! Writes sample figures, and a page that shows them all, into a directory.
//!
//! `cargo run -p eigenveil-figures --example gallery -- DIRECTORY`

use std::{error::Error, fs, path::PathBuf};

#[path = "../tests/samples/mod.rs"]
mod samples;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.ok_or("usage: gallery DIRECTORY")?;
    fs::create_dir_all(&directory)?;
    let mut page = String::from(
        "<!doctype html><meta charset=utf-8><meta name=color-scheme content=\"light dark\">\
         <title>Gallery</title>",
    );
    for (name, svg) in samples::all() {
        fs::write(directory.join(name), &svg)?;
        page.push_str(&format!("<p>{svg}</p>"));
    }
    fs::write(directory.join("index.html"), page)?;
    println!("written to {}", directory.display());
    Ok(())
}
