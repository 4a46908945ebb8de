//! Addresses that functions return to.

use super::code::Code;
use crate::dotnet::Memory;
use crate::unwind::uncovered::{MAX_CALL_BYTES, ends_with_call};

/// First instructions of code that HotSpot returns to without a call before it.
///
/// Its interpreter pushes the address of code that restores the stack pointer from the frame
/// (templateInterpreterGenerator_x86.cpp, `generate_return_entry_for`). To return to a method that
/// is no longer valid, it stores the address of the code that replaces the frame (x86.ad,
/// `emit_deopt_handler`).
const ENTRIES: [&[u8]; 3] = [
    // mov rsp, [rbp-16]
    &[0x48, 0x8b, 0x65, 0xf0],
    // mov rcx, [rbp-16]; lea rsp, [rbp+rcx*8]
    &[0x48, 0x8b, 0x4d, 0xf0, 0x48, 0x8d, 0x64, 0xcd],
    // call of the next instruction; sub qword ptr [rsp], 5
    &[0xe8, 0, 0, 0, 0, 0x48, 0x83, 0x2c, 0x24, 5],
];

/// Returns whether a function may return to an address.
pub(super) fn is_return<M: Memory>(code: &mut Code<'_, M>, address: u64) -> bool {
    let is_entry = |code: &[u8]| ENTRIES.iter().any(|entry| code.starts_with(entry));
    ends_with_call(&code.before(address, MAX_CALL_BYTES as u64))
        || code.at(address).is_some_and(is_entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dotnet::Image;
    use crate::machine::{Backing, Maps};

    #[test]
    fn functions_return_after_calls_and_to_entries() {
        let maps = Maps::of_pages(&[(0x1000, Backing::Jit)]);
        let is_return_at = |bytes: &[u8], offset| {
            let start = 0x1000;
            let image = Image { start, bytes };
            is_return(&mut Code::new(&image, &maps), start + offset)
        };
        assert!(is_return_at(&[0x41, 0xff, 0xd2, 0x90], 3));
        assert!(!is_return_at(&[0x41, 0xff, 0xd2, 0x90], 2));
        for entry in ENTRIES {
            assert!(is_return_at(entry, 0));
        }
        assert!(!is_return_at(&[0x48, 0x8b, 0x65, 0xe8], 0));
    }
}
