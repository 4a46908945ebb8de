//! The directories of `src/` import each other in one direction, as docs/architecture.md draws it.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use support::sources::{is_of_tests, source_files};
use syn::visit::{self, Visit};

/// Imported modules by importing module. A module is its path below `crate`.
type Imports = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// `src/a/b.rs` and `src/a/b/mod.rs` are the module `a::b`.
fn module_of(file: &Path) -> Vec<String> {
    let relative = file.strip_prefix(root().join("src")).unwrap();
    let parts = relative.with_extension("");
    let parts = parts.iter().map(|part| part.to_str().unwrap().to_owned());
    parts
        .filter(|part| !matches!(part.as_str(), "mod" | "lib" | "main"))
        .collect()
}

/// Collects the paths that a file names, `use` trees included.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn add_tree(&mut self, mut path: Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.add_tree(path, &inner.tree);
            }
            syn::UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.0.push(path);
            }
            syn::UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                self.0.push(path);
            }
            syn::UseTree::Glob(_) => self.0.push(path),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(path.clone(), tree);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_of_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        self.add_tree(Vec::new(), &import.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|part| part.ident.to_string());
        self.0.push(segments.collect());
        visit::visit_path(self, path);
    }
}

/// The longest prefix of a path that is a module.
fn resolve(path: &[String], from: &[String], modules: &BTreeSet<Vec<String>>) -> Vec<String> {
    let mut module = from.to_vec();
    let mut rest = path;
    match rest.first().map(String::as_str) {
        Some("crate") => {
            module.clear();
            rest = &rest[1..];
        }
        Some("self") => rest = &rest[1..],
        Some("super") => {}
        _ if !modules.contains(&[from, &rest[..rest.len().min(1)]].concat()) => {
            return from.to_vec();
        }
        _ => {}
    }
    while let [first, after @ ..] = rest
        && first == "super"
    {
        module.pop();
        rest = after;
    }
    for part in rest {
        module.push(part.clone());
        if !modules.contains(&module) {
            module.pop();
            break;
        }
    }
    module
}

fn imports() -> Imports {
    let files = source_files(&root().join("src"));
    let modules: BTreeSet<_> = files.iter().map(|file| module_of(file)).collect();
    let mut imports = Imports::new();
    for file in &files {
        let from = module_of(file);
        let mut paths = Paths::default();
        paths.visit_file(&syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap());
        let imported = paths.0.iter().map(|path| resolve(path, &from, &modules));
        let imported: BTreeSet<_> = imported.filter(|module| *module != from).collect();
        imports.entry(from).or_default().extend(imported);
    }
    imports
}

/// The graph of one level: each node with the nodes that it imports.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The children of `parent`, each with its siblings that it imports. What `parent` itself holds is not a node.
fn siblings(imports: &Imports, parent: &[String]) -> Graph {
    let child = |module: &Vec<String>| {
        let rest = module.strip_prefix(parent)?;
        rest.first().cloned()
    };
    let mut graph = Graph::new();
    for (from, all) in imports {
        let Some(node) = child(from) else { continue };
        let imported = all.iter().filter_map(child).filter(|other| *other != node);
        graph.entry(node.clone()).or_default().extend(imported);
    }
    graph
}

/// Removes each node that imports no other node, or that no other node imports, until only circles and the paths between
/// them remain.
fn circles(mut graph: Graph) -> Graph {
    loop {
        let imported: BTreeSet<String> = graph.values().flatten().cloned().collect();
        let before = graph.len();
        graph.retain(|node, imports| !imports.is_empty() && imported.contains(node));
        let left: BTreeSet<String> = graph.keys().cloned().collect();
        for imports in graph.values_mut() {
            imports.retain(|node| left.contains(node));
        }
        if graph.len() == before {
            return graph;
        }
    }
}

/// One line for each directory, in an order in which each stands after all that it imports.
fn drawing(graph: &Graph) -> String {
    let width = graph.keys().map(String::len).max().unwrap_or(0);
    let mut left = graph.clone();
    let mut lines = Vec::new();
    while !left.is_empty() {
        let next: Vec<_> = left
            .iter()
            .filter(|(_, imported)| imported.iter().all(|node| !left.contains_key(node)))
            .map(|(node, _)| node.clone())
            .collect();
        assert!(!next.is_empty(), "{left:?}");
        for node in next {
            let imported = left.remove(&node).unwrap();
            let imported: Vec<_> = imported.into_iter().collect();
            let line = format!("{node:width$}  {}", imported.join(" "));
            lines.push(line.trim_end().to_owned());
        }
    }
    lines.join("\n")
}

/// The directories; files of the crate's root are not drawn.
fn directories() -> Graph {
    let mut graph = siblings(&imports(), &[]);
    let is_directory = |node: &String| root().join("src").join(node).is_dir();
    graph.retain(|node, _| is_directory(node));
    for imported in graph.values_mut() {
        imported.retain(is_directory);
    }
    graph
}

#[test]
fn finds_imports_of_all_forms() {
    let imports = imports();
    let imported = |from: &[&str]| {
        let from: Vec<_> = from.iter().map(|part| (*part).to_owned()).collect();
        let modules = imports[&from].iter().map(|module| module.join("::"));
        modules.collect::<BTreeSet<_>>()
    };
    // A plain path, a group, a path within an expression, a sibling.
    assert!(imported(&["perf", "merge"]).contains("ids"));
    assert!(imported(&["cli", "view"]).contains("view"));
    assert!(imported(&["machine", "file"]).contains("machine::content"));
    assert!(imported(&["trace", "events", "stream"]).contains("nettrace"));
}

#[test]
fn recognizes_a_circle() {
    let graph = |edges: &[(&str, &str)]| {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry((*to).into()).or_default();
            graph
                .entry((*from).into())
                .or_default()
                .insert((*to).into());
        }
        graph
    };
    let straight = [("a", "b"), ("b", "c"), ("a", "c")];
    assert!(circles(graph(&straight)).is_empty());
    let closed = [&straight[..], &[("c", "b")]].concat();
    let expected = graph(&[("b", "c"), ("c", "b")]);
    assert_eq!(circles(graph(&closed)), expected);
}

#[test]
fn directories_import_each_other_without_a_circle() {
    assert_eq!(circles(directories()), Graph::new());
}

#[test]
fn files_of_machine_import_each_other_without_a_circle() {
    let graph = siblings(&imports(), &["machine".to_owned()]);
    assert_eq!(circles(graph), Graph::new());
}

#[test]
fn the_architecture_page_draws_the_imports() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let drawn = page.split("```imports\n").nth(1).unwrap_or_default();
    let drawn = drawn.split("\n```").next().unwrap_or_default();
    assert_eq!(
        drawn,
        drawing(&directories()),
        "the block ```imports of docs/architecture.md is stale"
    );
}
