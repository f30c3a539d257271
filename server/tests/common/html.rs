//! Reading pages in tests: a strict parser for our templates, and the few selectors that tests use.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test file compiles this and uses its own part"
)]

use roxmltree::{Document, Node};

const VOID: [&str; 6] = ["br", "img", "input", "link", "meta", "source"];
/// Elements that may not be in a paragraph: a browser would end it there.
const BLOCKS: [&str; 13] = [
    "div", "dl", "fieldset", "figure", "form", "h1", "h2", "h3", "ol", "p", "pre", "section", "ul",
];

/// Parses a page whose elements are all closed in order, whose attributes are unique, and whose text is escaped.
#[track_caller]
pub fn parse(html: &str) -> Document<'static> {
    let xml: &'static str = Box::leak(to_xml(html).into_boxed_str());
    let document = Document::parse(xml).unwrap_or_else(|error| panic!("{error}: {html}"));
    for block in select(&document, "p *") {
        let name = block.tag_name().name();
        assert!(!BLOCKS.contains(&name), "{name} in a paragraph: {html}");
    }
    document
}

fn to_xml(html: &str) -> String {
    let mut rest = html.strip_prefix("<!DOCTYPE html>").unwrap();
    let mut xml = String::new();
    while let Some((text, tag)) = rest.split_once('<') {
        let (tag, after) = tag.split_once('>').unwrap();
        let name = tag.split(' ').next().unwrap();
        let end = if VOID.contains(&name) { "/" } else { "" };
        xml.extend([text, "<", &with_values(tag), end, ">"]);
        rest = after;
    }
    xml + rest
}

/// Gives an empty value to each attribute without one.
fn with_values(tag: &str) -> String {
    let outside_quotes = |(number, part): (usize, &str)| {
        let word = |(index, word): (usize, &str)| {
            let complete = word.is_empty() || word.ends_with('=') || number + index == 0;
            format!("{word}{}", if complete { "" } else { "=\"\"" })
        };
        let words: Vec<String> = part.split(' ').enumerate().map(word).collect();
        words.join(" ")
    };
    let parts = tag.split('"').enumerate();
    let parts = parts.map(|(number, part)| match number % 2 {
        0 => outside_quotes((number, part)),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("\"")
}

/// Elements matching a selector, in document order: lists, ancestors, and for one element its tag, `#id`, `.class`,
/// `[attribute]`, `[attribute=value]` and `:not(…)`.
pub fn select<'a>(document: &'a Document<'static>, selector: &str) -> Vec<Node<'a, 'static>> {
    let named = |node: &Node<'_, '_>| {
        selector.split(',').any(|one| {
            let mut words = one.split_whitespace().rev();
            let mut ancestors = node.ancestors().skip(1);
            words.next().is_some_and(|own| is(node, own))
                && words.all(|word| ancestors.any(|ancestor| is(&ancestor, word)))
        })
    };
    document.descendants().filter(named).collect()
}

fn is(node: &Node<'_, '_>, compound: &str) -> bool {
    const BEGINS: [char; 4] = ['#', '.', '[', ':'];
    let (tag, mut rest) = compound.split_at(compound.find(BEGINS).unwrap_or(compound.len()));
    let mut holds = node.is_element() && (["", "*"].contains(&tag) || node.has_tag_name(tag));
    while let Some(kind) = rest.chars().next() {
        let (part, after) = match kind {
            '[' => rest[1..].split_once(']').unwrap(),
            ':' => rest.strip_prefix(":not(").unwrap().split_once(')').unwrap(),
            _ => rest[1..].split_at(rest[1..].find(BEGINS).unwrap_or(rest.len() - 1)),
        };
        holds &= match kind {
            '#' => node.attribute("id") == Some(part),
            '.' => {
                let classes = node.attribute("class").unwrap_or_default();
                classes.split_whitespace().any(|class| class == part)
            }
            '[' => match part.split_once('=') {
                Some((name, value)) => node.attribute(name) == Some(value.trim_matches('\'')),
                None => node.has_attribute(part),
            },
            _ => !is(node, part),
        };
        rest = after;
    }
    holds
}

/// The text of an element and its descendants, with single blanks.
pub fn text(node: Node<'_, '_>) -> String {
    let texts = node.descendants().filter(Node::is_text);
    let text: String = texts.filter_map(|node| node.text()).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
