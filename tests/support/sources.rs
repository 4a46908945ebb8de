//! The source files of the product, for tests of its structure.

use std::fs;
use std::path::{Path, PathBuf};

/// All source files below a directory, without those of unit tests.
pub fn source_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths
        .flat_map(|path| match path.is_dir() {
            true => source_files(&path),
            false => vec![path],
        })
        .collect();
    files.retain(|path| {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        path.extension().is_some_and(|suffix| suffix == "rs") && !stem.ends_with("tests")
    });
    files
}

/// Whether an item exists only in unit tests.
pub fn is_of_tests(item: &syn::Item) -> bool {
    match item {
        syn::Item::Mod(module) => is_test(&module.attrs),
        syn::Item::Use(import) => is_test(&import.attrs),
        syn::Item::Fn(function) => is_test(&function.attrs),
        syn::Item::Impl(block) => is_test(&block.attrs),
        _ => false,
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    let is_cfg_test = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    };
    attributes.iter().any(is_cfg_test)
}
