//! Names, lines and inlined functions of a Go program, from its function table.

use std::sync::OnceLock;

use super::debug_files::DebugFiles;
use crate::dwarf::SourceFrame;
use crate::elf::ElfFile;
use crate::go::{GoFunction, GoTable};
use crate::table::Symbol;

/// The function table of a file, which is read when it is first needed.
#[derive(Default)]
pub(super) struct GoFunctions(OnceLock<Option<GoTable>>);

impl GoFunctions {
    /// Returns the function at an address of a file. Returns `None` if it has no name.
    pub(super) fn lookup(
        &self,
        elf: Option<&ElfFile>,
        address: u64,
        debug_files: &DebugFiles,
    ) -> Option<GoFunction<'_>> {
        let read = || {
            GoTable::read(elf?).unwrap_or_else(|error| {
                debug_files.report(error);
                None
            })
        };
        let function = self.0.get_or_init(read).as_ref()?.lookup(address)?;
        (!function.name.is_empty()).then_some(function)
    }
}

/// Returns the symbol that the linker writes for a function, unless the file is stripped.
pub(super) fn symbol<'a>(function: &GoFunction<'a>) -> Symbol<'a> {
    Symbol {
        start: function.start,
        end: function.end,
        name: function.name,
        is_sized: true,
        tag: 0,
    }
}

/// Returns the functions at an address, innermost first, as debug information has them.
pub(super) fn source_frames<'a>(function: &GoFunction<'a>, address: u64) -> Vec<SourceFrame<'a>> {
    let frames = function.frames(address).into_iter();
    let frames = frames.map(|frame| SourceFrame {
        name: Some(frame.name),
        file: frame.file.and_then(|file| std::str::from_utf8(file).ok()),
        line: frame.line,
    });
    frames.collect()
}
