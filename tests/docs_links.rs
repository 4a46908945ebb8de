//! Links between the pages resolve, and `docs/troubleshooting.md` quotes messages that the program contains.
#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// Level of the headings in `docs/troubleshooting.md` that quote a message.
const MESSAGE_LEVEL: HeadingLevel = HeadingLevel::H3;

/// Words that replace the variable parts of a message in a heading, besides `...`.
const PLACEHOLDERS: [&str; 2] = ["N", "FILE"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `directory` with this extension.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Links and headings of a page.
#[derive(Default)]
struct Page {
    links: Vec<String>,
    headings: Vec<Heading>,
    anchors: HashSet<String>,
}

struct Heading {
    level: HeadingLevel,
    text: String,
    /// Whether the whole heading is one code span.
    is_code: bool,
}

impl Page {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut page = Self::default();
        let mut uses: HashMap<String, usize> = HashMap::new();
        let mut open: Option<(String, usize)> = None;
        let mut code_spans = 0;
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => {
                    open = Some((String::new(), 0));
                    code_spans = 0;
                }
                Event::Text(part) => {
                    if let Some((heading, plain)) = &mut open {
                        heading.push_str(&part);
                        *plain += 1;
                    }
                }
                Event::Code(part) => {
                    if let Some((heading, _)) = &mut open {
                        heading.push_str(&part);
                        code_spans += 1;
                    }
                }
                Event::End(TagEnd::Heading(level)) => {
                    let (text, plain) = open.take().unwrap();
                    let slug = slug(&text);
                    let earlier = uses.entry(slug.clone()).or_default();
                    page.anchors.insert(match *earlier {
                        0 => slug,
                        earlier => format!("{slug}-{earlier}"),
                    });
                    *earlier += 1;
                    page.headings.push(Heading {
                        level,
                        text,
                        is_code: plain == 0 && code_spans == 1,
                    });
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// Why a link of `page` does not resolve; `None` if it does or leaves the repository.
fn broken(page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        path => page.parent().unwrap().join(path),
    };
    if !target.exists() {
        return Some(format!("there is no {}", target.display()));
    }
    let has_anchor = anchor.is_empty() || Page::read(&target).anchors.contains(anchor);
    (!has_anchor).then(|| format!("{} has no heading #{anchor}", target.display()))
}

#[test]
fn every_relative_link_and_anchor_resolves() {
    let mut pages = files(&root().join("docs"), "md");
    pages.extend([root().join("README.md"), root().join("symbols/README.md")]);
    let mut errors = Vec::new();
    let mut links = 0;
    for page in &pages {
        for link in Page::read(page).links {
            links += 1;
            if let Some(why) = broken(page, &link) {
                errors.push(format!("{}: {link}: {why}", page.display()));
            }
        }
    }
    assert!(links > 0, "no links found");
    assert!(errors.is_empty(), "broken links:\n{}", errors.join("\n"));
}

/// The values of all string literals in `tokens`, except documentation and test code.
fn string_literals(tokens: TokenStream, found: &mut Vec<String>) {
    let mut tokens = tokens.into_iter().peekable();
    let mut is_attribute = false;
    while let Some(token) = tokens.next() {
        let after_hash = std::mem::take(&mut is_attribute);
        match token {
            TokenTree::Punct(punct) => {
                is_attribute = punct.as_char() == '#' || after_hash && punct.as_char() == '!';
            }
            TokenTree::Group(group) if after_hash && starts_with(&group.stream(), "doc") => {}
            TokenTree::Group(group) if after_hash && is_cfg_test(&group.stream()) => {
                // The item ends with its body or with a semicolon.
                for token in tokens.by_ref() {
                    match token {
                        TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => break,
                        TokenTree::Punct(punct) if punct.as_char() == ';' => break,
                        _ => {}
                    }
                }
            }
            TokenTree::Group(group) => string_literals(group.stream(), found),
            TokenTree::Literal(literal) => {
                if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                    found.push(text.value());
                }
            }
            TokenTree::Ident(_) => {}
        }
    }
}

fn starts_with(tokens: &TokenStream, name: &str) -> bool {
    let first = tokens.clone().into_iter().next();
    matches!(first, Some(TokenTree::Ident(ident)) if ident == name)
}

fn is_cfg_test(tokens: &TokenStream) -> bool {
    tokens.to_string().replace(' ', "") == "cfg(test)"
}

/// The parts of a message between its variable parts.
fn fixed_parts(message: &str) -> Vec<String> {
    const VARIABLE: char = '\0';
    let message = message.replace("...", &VARIABLE.to_string());
    let mut parts = vec![String::new()];
    for piece in message.split_inclusive(|letter: char| !letter.is_alphanumeric()) {
        let end = piece.find(|letter: char| !letter.is_alphanumeric());
        let (word, separator) = piece.split_at(end.unwrap_or(piece.len()));
        for text in [word, separator] {
            if PLACEHOLDERS.contains(&text) || text.starts_with(VARIABLE) {
                parts.push(String::new());
            } else {
                parts.last_mut().unwrap().push_str(text);
            }
        }
    }
    let parts = parts.iter().map(|part| part.trim().to_owned());
    parts
        .filter(|part| part.contains(char::is_alphanumeric))
        .collect()
}

fn contains_in_order(text: &str, parts: &[String]) -> bool {
    let mut rest = text;
    parts
        .iter()
        .all(|part| match rest.split_once(part.as_str()) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
}

#[test]
fn troubleshooting_quotes_messages_of_the_program() {
    let mut literals = Vec::new();
    for directory in ["src", "symbols/src"] {
        for path in files(&root().join(directory), "rs") {
            let source: TokenStream = fs::read_to_string(&path).unwrap().parse().unwrap();
            string_literals(source, &mut literals);
        }
    }
    let page = Page::read(&root().join("docs/troubleshooting.md"));
    let messages = page.headings.iter();
    let messages: Vec<&Heading> = messages
        .filter(|heading| heading.level == MESSAGE_LEVEL)
        .collect();
    assert!(!messages.is_empty(), "no headings of level 3");
    let mut errors = Vec::new();
    for Heading { text, is_code, .. } in messages {
        let parts = fixed_parts(text);
        if !is_code || parts.is_empty() {
            errors.push(format!("not one message in backticks: {text}"));
        } else if !literals.iter().any(|text| contains_in_order(text, &parts)) {
            errors.push(format!("in no string literal: {text}"));
        }
    }
    assert!(
        errors.is_empty(),
        "docs/troubleshooting.md is stale:\n{}",
        errors.join("\n")
    );
}

#[test]
fn splits_messages_at_their_variable_parts() {
    assert_eq!(
        fixed_parts("cannot read FILE: ... after N s"),
        ["cannot read", "after", "s"]
    );
    assert!(contains_in_order(
        "cannot read {path}: {error} after {} s",
        &fixed_parts("cannot read FILE: ... after N s")
    ));
    assert!(!contains_in_order(
        "after {} s cannot read {path}",
        &fixed_parts("cannot read FILE: ... after N s")
    ));
}
