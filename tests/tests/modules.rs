//! The modules of a crate depend on one another one way.
//!
//! Read from the sources: an arrow leads from the file that names something, in a `use` or by its path, to the file
//! that defines it. Re-exports are followed, so that `crate::Name` leads to where `Name` is and not to the crate's root.
//! Neither a `mod` nor a re-export is an arrow, unless the file makes use of the name too. What is under `#[cfg(test)]`
//! does not count.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

/// What holds of a crate: no cycle of more than so many files, and none between the modules of its root, files with
/// their folders, where that is asked. What is left in the others, [`the_cycles_of_every_crate`] tells.
struct Rule {
    /// Its root module, from the repository's.
    root: &'static str,
    /// Whether the modules of its root depend one way.
    ordered: bool,
    /// Files that may be in one cycle.
    largest: usize,
    /// A folder whose files may be more.
    except: &'static str,
}

const RULES: [Rule; 8] = [
    Rule {
        root: "shared/src/lib.rs",
        ordered: false,
        largest: 3,
        except: "",
    },
    Rule {
        root: "central/src/lib.rs",
        ordered: true,
        largest: 1,
        except: "",
    },
    Rule {
        root: "server/src/lib.rs",
        ordered: true,
        largest: 2,
        except: "server/src/store/",
    },
    Rule {
        root: "estimation/src/lib.rs",
        ordered: false,
        largest: 3,
        except: "",
    },
    Rule {
        root: "client/src/lib.rs",
        ordered: false,
        largest: 3,
        except: "",
    },
    Rule {
        root: "cli/src/lib.rs",
        ordered: false,
        largest: 3,
        except: "",
    },
    Rule {
        root: "plots/src/lib.rs",
        ordered: false,
        largest: 3,
        except: "",
    },
    Rule {
        root: "audit/src/lib.rs",
        ordered: false,
        largest: 3,
        except: "",
    },
];
/// Every crate.
const ROOTS: [&str; 8] = [
    "shared/src/lib.rs",
    "client/src/lib.rs",
    "server/src/lib.rs",
    "estimation/src/lib.rs",
    "plots/src/lib.rs",
    "audit/src/lib.rs",
    "central/src/lib.rs",
    "cli/src/lib.rs",
];

/// A word or a sign of a source.
type Tokens<'a> = Vec<&'a str>;

/// Words and signs, without comments, literals and lifetimes.
fn tokens(text: &str) -> Tokens<'_> {
    let mut found = Vec::new();
    let bytes = text.as_bytes();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let after = &rest[word..];
        at += if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            comment(rest)
        } else if word <= 2 && after.starts_with(['"', '#']) && rest[..word].contains('r') {
            // r"…", br#"…"#; r#word is a word.
            let signs = after.len() - after.trim_start_matches('#').len();
            if after[signs..].starts_with('"') {
                let end = format!("\"{}", "#".repeat(signs));
                let text = word + signs + 1;
                let length = rest[text..].find(&end);
                length.map_or(rest.len(), |length| text + length + end.len())
            } else {
                word + signs
            }
        } else if word > 0 && !after.starts_with('"') {
            found.push(&rest[..word]);
            word
        } else if after.starts_with('"') {
            word + quoted(after, '"')
        } else if let Some(inside) = rest.strip_prefix('\'') {
            let first = inside.chars().next().unwrap_or_default();
            if first == '\\' || inside[first.len_utf8()..].starts_with('\'') {
                quoted(rest, '\'')
            } else {
                1 + inside.find(|c| !is_word(c)).unwrap_or(inside.len())
            }
        } else if rest.starts_with("::") {
            found.push(&rest[..2]);
            2
        } else {
            let length = rest.chars().next().map_or(1, char::len_utf8);
            if !rest.starts_with(char::is_whitespace) {
                found.push(&rest[..length]);
            }
            length
        };
    }
    found
}

/// Length of a comment that may hold others.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(next) = text[at..].find(['/', '*']).map(|next| at + next) {
        let sign = text.get(next..next + 2).unwrap_or_default();
        depth += i32::from(sign == "/*") - i32::from(sign == "*/");
        at = next + if ["/*", "*/"].contains(&sign) { 2 } else { 1 };
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Length of a literal that begins with its mark.
fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == mark => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The position behind the bracket that closes the one at `open`.
fn behind(tokens: &[&str], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "{" | "[" | "(" => depth += 1,
            "}" | "]" | ")" => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// Without what stands under `#[cfg(test)]`.
fn without_tests<'a>(tokens: &[&'a str]) -> Tokens<'a> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let attribute = tokens[at..].starts_with(&["#", "["]);
        let end = if attribute {
            behind(tokens, at + 1)
        } else {
            at
        };
        let inside = &tokens[at..end];
        if inside.contains(&"cfg") && inside.contains(&"test") && !inside.contains(&"not") {
            at = item(tokens, end);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// The position behind the item, field or statement at `at`.
fn item(tokens: &[&str], mut at: usize) -> usize {
    while tokens[at..].starts_with(&["#", "["]) {
        at = behind(tokens, at + 1);
    }
    if tokens[at..].starts_with(&["pub"]) {
        at += 1;
        if tokens[at..].starts_with(&["("]) {
            at = behind(tokens, at);
        }
    }
    let is_use = tokens[at..].starts_with(&["use"]);
    while at < tokens.len() {
        match tokens[at] {
            "{" if !is_use => return behind(tokens, at),
            "{" | "(" | "[" => at = behind(tokens, at),
            ";" | "," => return at + 1,
            "}" => return at,
            _ => at += 1,
        }
    }
    at
}

/// What a module holds.
#[derive(Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    /// Items it defines.
    items: BTreeSet<String>,
    /// What it calls something, the path of that, and whether it is passed on.
    imports: Vec<(String, Vec<String>, bool)>,
    /// Paths in code that begin with `crate`, `self`, `super`, or the name of a child.
    paths: Vec<Vec<String>>,
    /// Every word outside of imports.
    words: BTreeSet<String>,
}

/// The modules of a crate by their paths; the root's is empty.
struct Modules(BTreeMap<Vec<String>, Module>);

const ITEMS: [&str; 9] = [
    "fn",
    "struct",
    "enum",
    "trait",
    "type",
    "const",
    "static",
    "union",
    "macro_rules",
];

impl Modules {
    /// From the root's file; `read` gives a file's text where there is one.
    fn new(root: &str, read: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut modules = Self(BTreeMap::new());
        modules.load(root, &[], read);
        modules
    }

    fn load(&mut self, file: &str, path: &[String], read: &dyn Fn(&str) -> Option<String>) {
        let text = read(file).unwrap_or_default();
        let tokens = without_tests(&tokens(&text));
        self.scan(&tokens, file, path);
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
        let own = matches!(name, "mod.rs" | "lib.rs" | "main.rs");
        let folder = if own {
            folder.to_owned()
        } else {
            format!("{folder}/{}", name.trim_end_matches(".rs"))
        };
        for child in self.0[path].children.clone() {
            let inner = [path, std::slice::from_ref(&child)].concat();
            if self.0.contains_key(&inner) {
                continue;
            }
            let files = [
                format!("{folder}/{child}.rs"),
                format!("{folder}/{child}/mod.rs"),
            ];
            let found = files.iter().find(|file| read(file).is_some());
            let found = found.unwrap_or_else(|| panic!("{file}: no file of mod {child}"));
            self.load(found, &inner, read);
        }
    }

    fn scan(&mut self, tokens: &[&str], file: &str, path: &[String]) {
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        let mut at = 0;
        while at < tokens.len() {
            let next = tokens.get(at + 1).copied().unwrap_or_default();
            match tokens[at] {
                "mod" if matches!(tokens.get(at + 2), Some(&";" | &"{")) => {
                    module.children.insert(next.to_owned());
                    if tokens[at + 2] == "{" {
                        let end = behind(tokens, at + 2);
                        let inner = [path, &[next.to_owned()]].concat();
                        self.scan(&tokens[at + 3..end - 1], file, &inner);
                        at = end;
                    } else {
                        at += 3;
                    }
                    continue;
                }
                "use" => {
                    let passed = at > 0 && matches!(tokens[at - 1], "pub" | ")");
                    let length = tokens[at..].iter().position(|token| *token == ";");
                    let end = length.map_or(tokens.len(), |length| at + length);
                    for (name, path) in imports(&tokens[at + 1..end]) {
                        module.imports.push((name, path, passed));
                    }
                    at = end;
                    continue;
                }
                word if ITEMS.contains(&word) => {
                    // macro_rules ! name
                    let name = if next == "!" {
                        tokens.get(at + 2).copied()
                    } else {
                        Some(next)
                    };
                    module.items.extend(name.map(str::to_owned));
                }
                // Of `pub(in crate::…)` nothing is used.
                word if next == "::"
                    && (at == 0 || tokens[at - 1] != "::")
                    && !tokens[..at].ends_with(&["(", "in"]) =>
                {
                    let mut found = vec![word.to_owned()];
                    let mut end = at;
                    while tokens.get(end + 1) == Some(&"::") && end + 2 < tokens.len() {
                        end += 2;
                        found.push(tokens[end].to_owned());
                    }
                    module.paths.push(found);
                }
                _ => {}
            }
            module.words.insert(tokens[at].to_owned());
            at += 1;
        }
        self.0.insert(path.to_vec(), module);
    }

    /// The module that defines what `path` is in the eyes of `from`; `None` where it is another crate's.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<Vec<String>> {
        let mut at: Vec<String> = from.to_vec();
        let mut rest = path;
        let first = path.first()?;
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            _ if self.0[&at].children.contains(first) => at.push(first.clone()),
            _ => return None,
        }
        rest = &rest[1..];
        while let Some(name) = rest.first() {
            let module = &self.0[&at];
            if name == "super" {
                at.pop();
            } else if name == "self" || name == "*" {
                return Some(at);
            } else if module.children.contains(name) {
                at.push(name.clone());
            } else if module.items.contains(name) || depth > 8 {
                return Some(at);
            } else {
                // Passed on, by its name or with all the others.
                for (alias, target, _) in &module.imports {
                    if alias == name || alias == "*" {
                        let target = if alias == "*" {
                            &[&target[..target.len() - 1], std::slice::from_ref(name)].concat()
                        } else {
                            target
                        };
                        let whole = [target, &rest[1..]].concat();
                        if let Some(found) = self.resolve(&at, &whole, depth + 1)
                            && (alias == name || self.0[&found].items.contains(name))
                        {
                            return Some(found);
                        }
                    }
                }
                return Some(at);
            }
            rest = &rest[1..];
        }
        Some(at)
    }

    /// Every arrow between files, with a path that makes it.
    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (path, module) in &self.0 {
            let imports = module
                .imports
                .iter()
                .filter(|(name, _, passed)| !passed || name == "*" || module.words.contains(name));
            let named = imports.map(|(_, path, _)| path).chain(&module.paths);
            for name in named {
                // Passed on with all the others: no name is used.
                let Some(target) = self.resolve(path, name, 0) else {
                    continue;
                };
                let target = &self.0[&target].file;
                if *target != module.file {
                    let why = arrows.entry(module.file.clone()).or_default();
                    why.entry(target.clone()).or_insert_with(|| name.join("::"));
                }
            }
        }
        arrows
    }

    /// The module of the root that a file belongs to.
    fn unit(&self, file: &str) -> String {
        let path = self.0.iter().find(|(_, module)| module.file == file);
        let first = path.and_then(|(path, _)| path.first());
        first.map_or_else(|| "the root".to_owned(), Clone::clone)
    }

    /// Arrows between the modules of the root, files with their folders.
    fn units(&self, files: &Arrows) -> Arrows {
        let mut units = Arrows::new();
        for (from, targets) in files {
            for (to, why) in targets {
                let (a, b) = (self.unit(from), self.unit(to));
                if a != b {
                    let why = format!("{from}: {why}");
                    units.entry(a).or_default().entry(b).or_insert(why);
                }
            }
        }
        units
    }
}

/// What a `use` names: each with its path.
fn imports(tokens: &[&str]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut path: Vec<String> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at] {
            "{" => {
                let end = behind(tokens, at) - 1;
                for part in split(&tokens[at + 1..end]) {
                    for (name, inner) in imports(part) {
                        found.push((name, [&path[..], &inner].concat()));
                    }
                }
                return found;
            }
            "as" => {
                let name = tokens.get(at + 1).copied().unwrap_or_default();
                found.push((name.to_owned(), path));
                return found;
            }
            "::" => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    if path.last().is_some_and(|name| name == "self") && path.len() > 1 {
        path.pop();
    }
    if let Some(name) = path.last().cloned() {
        found.push((name, path));
    }
    found
}

/// By the commas outside of brackets.
fn split<'a, 'b>(tokens: &'b [&'a str]) -> Vec<&'b [&'a str]> {
    let (mut parts, mut from, mut at) = (Vec::new(), 0, 0);
    while at < tokens.len() {
        match tokens[at] {
            "{" => at = behind(tokens, at),
            "," => {
                parts.push(&tokens[from..at]);
                at += 1;
                from = at;
            }
            _ => at += 1,
        }
    }
    parts.push(&tokens[from..]);
    parts
}

/// From, to, and why.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// Sets of more than one node in which each is reached from each, the largest first.
fn cycles(arrows: &Arrows) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = arrows
        .keys()
        .map(|from| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from.as_str()]);
            while let Some(node) = open.pop() {
                for next in arrows.get(node).into_iter().flat_map(BTreeMap::keys) {
                    if seen.insert(next.as_str()) {
                        open.push(next);
                    }
                }
            }
            (from.as_str(), seen)
        })
        .collect();
    let both = |a: &str, b: &str| reached.get(a).is_some_and(|seen| seen.contains(b));
    let sets: BTreeSet<BTreeSet<&str>> = reached
        .keys()
        .filter(|node| both(node, node))
        .map(|node| {
            reached
                .keys()
                .filter(|other| both(node, other) && both(other, node))
        })
        .map(|members| members.copied().collect())
        .collect();
    let mut sets: Vec<_> = sets.into_iter().collect();
    sets.sort_by_key(|members| std::cmp::Reverse(members.len()));
    sets
}

/// A cycle with the arrows in it.
fn told(members: &BTreeSet<&str>, arrows: &Arrows) -> String {
    let mut text = format!("{} in one cycle:\n", members.len());
    for from in members {
        for (to, why) in &arrows[*from] {
            if members.contains(to.as_str()) {
                let _ = writeln!(text, "  {from} -> {to}  ({why})");
            }
        }
    }
    text
}

/// The cycles that a rule forbids.
fn faults(rule: &Rule, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let modules = Modules::new(rule.root, read);
    let files = modules.arrows();
    let units = modules.units(&files);
    let excepted = |file: &&str| !rule.except.is_empty() && file.starts_with(rule.except);
    let between = cycles(&units)
        .into_iter()
        .filter(|_| rule.ordered)
        .map(|cycle| told(&cycle, &units));
    let within = cycles(&files)
        .into_iter()
        .filter(|cycle| cycle.len() > rule.largest && !cycle.iter().all(excepted));
    between
        .chain(within.map(|cycle| told(&cycle, &files)))
        .collect()
}

fn on_disk(file: &str) -> Option<String> {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)).ok()
}

#[test]
fn modules_depend_one_way() {
    for rule in &RULES {
        let arrows = Modules::new(rule.root, &on_disk).arrows();
        assert!(
            arrows.len() > 3,
            "{}: the test reads less than there is",
            rule.root
        );
        let faults = faults(rule, &on_disk);
        assert!(faults.is_empty(), "{}: {}", rule.root, faults.join("\n"));
    }
}

#[test]
#[ignore = "fails at nothing: it tells the cycles that are left in every crate"]
fn the_cycles_of_every_crate() {
    for root in ROOTS {
        let rule = Rule {
            root,
            ordered: true,
            largest: 1,
            except: "",
        };
        let modules = Modules::new(root, &on_disk);
        println!("{root}: {} modules", modules.0.len());
        for fault in faults(&rule, &on_disk) {
            println!("{fault}");
        }
    }
}

/// What is wrong with a small crate once `more` is put into one of its files.
fn planted(file: &str, more: &str) -> Vec<String> {
    let files = [
        (
            "src/lib.rs",
            "pub mod a;\nmod base;\nmod b;\npub use base::{Base, other as another};\npub use {a::*, b::Found};",
        ),
        ("src/base.rs", "pub struct Base; pub fn other() {}"),
        (
            "src/a/mod.rs",
            "mod one;\nmod two;\nmod three;\nmod four;\npub use one::One;\nuse crate::b;",
        ),
        (
            "src/a/one.rs",
            "use crate::{Base, another};\nuse super::two::Two;\npub struct One;",
        ),
        (
            "src/a/two.rs",
            "use crate::Base;\nuse super::three;\npub struct Two(Base);",
        ),
        ("src/a/three.rs", "use super::{four::*, One};"),
        ("src/a/four.rs", "pub struct Four;"),
        (
            "src/b.rs",
            "mod inner { pub struct Deep; }\npub struct Found(inner::Deep);\n#[cfg(test)]\nmod tests { use crate::a::One; }",
        ),
    ];
    let read = |asked: &str| {
        let (_, text) = files.iter().find(|(name, _)| *name == asked)?;
        let more = if asked == file { more } else { "" };
        Some(format!("{text}\n{more}"))
    };
    let rule = Rule {
        root: "src/lib.rs",
        ordered: true,
        largest: 3,
        except: "src/b/",
    };
    faults(&rule, &read)
}

#[test]
fn what_is_no_cycle_is_left_alone() {
    for (file, more) in [
        ("src/lib.rs", ""),
        (
            "src/base.rs",
            "// use crate::a::One;\n/* crate::a::One /* */ crate::One */",
        ),
        (
            "src/base.rs",
            "const A: &str = \"\\\"crate::a::One\"; const B: &[u8] = br#\"crate::\"One\"#;",
        ),
        (
            "src/base.rs",
            "const C: char = '\"'; fn f<'a>(_: &'a u8) {} // '\" crate::One",
        ),
        (
            "src/base.rs",
            "#[cfg(test)]\nuse crate::{a::One, b};\n#[cfg(test)]\nfn f() { crate::a::f() }",
        ),
        ("src/base.rs", "use crate::Found; use std::{self, fmt};"),
        ("src/b.rs", "use crate::Base; fn f() { let a = a::g(); }"),
        // Passed on, and not used.
        ("src/base.rs", "pub use crate::a::One;"),
        ("src/base.rs", "pub(in crate::a) fn f() {}"),
    ] {
        assert_eq!(planted(file, more), [""; 0], "{more}");
    }
}

#[test]
fn what_is_planted_is_found() {
    for (file, more, arrow) in [
        (
            "src/base.rs",
            "use crate::{b, a::{One as _}};",
            "  base -> a  (src/base.rs: crate::a::One)\n",
        ),
        ("src/base.rs", "use super::One;", "  base -> a  ("),
        ("src/base.rs", "fn f() -> crate::One {}", "  base -> a  ("),
        (
            "src/base.rs",
            "pub use crate::a::One; fn f(_: One) {}",
            "  base -> a  (",
        ),
        (
            "src/base.rs",
            "fn g() { for _ in crate::a::all() {} }",
            "  base -> a  (",
        ),
        (
            "src/base.rs",
            "#[cfg(not(test))] use crate::a;",
            "  base -> a  (",
        ),
        (
            "src/b.rs",
            "mod further { fn f() { super::super::a::f() } }",
            "  b -> a  (src/b.rs: super::super::a::f)\n",
        ),
        (
            "src/a/four.rs",
            "use super::two::Two;",
            "4 in one cycle:\n  src/a/four.rs -> src/a/two.rs  (super::two::Two)\n",
        ),
    ] {
        let faults = planted(file, more);
        assert!(
            faults.iter().any(|fault| fault.contains(arrow)),
            "{more}: {faults:?}"
        );
    }
}
