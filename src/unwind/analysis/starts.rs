//! Where functions start.

use std::collections::HashSet;

use iced_x86::InstructionInfoFactory;
use perfcollect_symbols::elf::CodeImage;

use super::entry::can_be_entry;
use super::no_return;
use super::sweep::Sweep;

/// Functions that do not return, without leading underscores and `@plt`.
const NO_RETURN: &[&[u8]] = &[
    b"abort",
    b"exit",
    b"Exit",
    b"quick_exit",
    b"stack_chk_fail",
    b"assert_fail",
    b"assert_perror_fail",
    b"assert",
    b"chk_fail",
    b"fortify_fail",
    b"libc_fatal",
    b"cxa_throw",
    b"cxa_rethrow",
    b"cxa_bad_cast",
    b"cxa_bad_typeid",
    b"cxa_throw_bad_array_new_length",
    b"cxa_pure_virtual",
    b"cxa_call_unexpected",
    b"Unwind_Resume",
    b"longjmp",
    b"siglongjmp",
    b"longjmp_chk",
    b"pthread_exit",
    b"pthread_unwind",
    b"pthread_unwind_next",
    b"thrd_exit",
    b"libc_start_main",
];
/// Parts of the names of other functions that do not return: `std::__throw_*`, Rust's panics.
const NO_RETURN_PARTS: &[&[u8]] = &[
    b"__throw_",
    b"9terminatev",
    b"9panicking",
    b"core6option13expect_failed",
    b"core6result13unwrap_failed",
    b"slice_start_index_len_fail",
    b"slice_end_index_len_fail",
    b"slice_index_order_fail",
    b"handle_alloc_error",
    b"capacity_overflow",
    b"rust_start_panic",
    b"panic_cannot_unwind",
];

/// Starts of functions of a file, and which of these do not return.
#[derive(Default)]
pub(super) struct Starts {
    /// Starts that something else than a guess names, sorted.
    strong: Vec<u64>,
    no_return: HashSet<u64>,
    /// The entry point of a program.
    entry: u64,
}

impl Starts {
    /// Collects the starts. `ranges` are those of the unwind information that is used.
    /// `symbols` are those of functions: start and name.
    pub(super) fn new<'a>(
        image: &CodeImage,
        sweep: &Sweep,
        ranges: impl Iterator<Item = u64>,
        symbols: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Self {
        let mut strong: Vec<u64> = ranges.collect();
        strong.extend(&sweep.calls);
        // The others may be labels, in tables of computed jumps.
        let mut info = InstructionInfoFactory::new();
        let pointers = image.pointers.iter().copied();
        strong.extend(pointers.filter(|pointer| {
            sweep.candidates.binary_search(pointer).is_ok()
                && can_be_entry(image, *pointer, &mut info)
        }));
        strong.extend((image.entry != 0).then_some(image.entry));
        let called = sweep.calls.iter().copied();
        let mut no_return: HashSet<u64> = called
            .filter(|start| no_return::never_returns(image, *start))
            .collect();
        for (start, name) in symbols {
            strong.push(start);
            if never_returns(name) {
                no_return.insert(start);
            }
        }
        strong.retain(|start| image.code_at(*start).is_some());
        strong.sort_unstable();
        strong.dedup();
        Self {
            strong,
            no_return,
            entry: image.entry,
        }
    }

    /// Returns whether a function starts at an address.
    pub(super) fn has(&self, address: u64) -> bool {
        self.strong.binary_search(&address).is_ok()
    }

    /// Returns the last start at or before an address.
    pub(super) fn before(&self, address: u64) -> Option<u64> {
        let after = self.strong.partition_point(|start| *start <= address);
        self.strong.get(after.checked_sub(1)?).copied()
    }

    /// Returns the first start after an address.
    pub(super) fn after(&self, address: u64) -> Option<u64> {
        let after = self.strong.partition_point(|start| *start <= address);
        self.strong.get(after).copied()
    }

    /// Returns whether a call of the function does not return.
    pub(super) fn never_returns(&self, start: u64) -> bool {
        self.no_return.contains(&start)
    }

    /// Returns whether the program starts there.
    pub(super) fn is_entry(&self, start: u64) -> bool {
        self.entry == start && start != 0
    }

    /// Returns the memory that they occupy, in bytes.
    pub(super) fn bytes(&self) -> usize {
        (self.strong.len() + self.no_return.len() * 2) * 8
    }
}

fn never_returns(name: &[u8]) -> bool {
    let plain = name.strip_suffix(b"@plt").unwrap_or(name);
    let plain = plain.trim_ascii_start();
    let underscores = plain.iter().take_while(|byte| **byte == b'_').count();
    let plain = plain.get(underscores..).unwrap_or_default();
    NO_RETURN.contains(&plain)
        || NO_RETURN_PARTS
            .iter()
            .any(|part| name.windows(part.len()).any(|window| window == *part))
}

#[cfg(test)]
mod tests {
    use super::never_returns;

    #[test]
    fn recognizes_functions_that_do_not_return() {
        for name in [
            "abort",
            "__assert_fail@plt",
            "_exit",
            "_ZSt20__throw_length_errorPKc@plt",
        ] {
            assert!(never_returns(name.as_bytes()), "{name}");
        }
        for name in ["exit_group", "at_exit", "aborted", ""] {
            assert!(!never_returns(name.as_bytes()), "{name}");
        }
    }
}
