//! Untrusted code without unwind information, in an ELF image that is valid otherwise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perfcollect::unwind::Analysis;
use perfcollect_symbols::elf::ElfFile;

/// Size of the headers, after which the code follows.
const HEADERS: usize = 64 + 56;
/// Number of instructions that are looked up.
const LOOKUPS: usize = 64;

fuzz_target!(|code: &[u8]| {
    let mut image = vec![0; HEADERS];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0, 1, 0, 0, 0]); // ET_DYN, x86-64, version 1
    put(24, &(HEADERS as u64).to_le_bytes()); // entry point
    put(32, &64_u64.to_le_bytes()); // program headers
    put(52, &[64, 0, 56, 0, 1, 0]); // header sizes, one program header
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]); // PT_LOAD, r-x
    put(96, &((HEADERS + code.len()) as u64).to_le_bytes()); // size in the file
    put(104, &((HEADERS + code.len()) as u64).to_le_bytes());
    image.extend_from_slice(code);
    let elf = ElfFile::parse(&image).expect("the headers are valid");
    let mut analysis = Analysis::new(&elf, None).expect("the file is for x86-64");
    let step = (code.len() / LOOKUPS).max(1);
    for offset in (0..code.len()).step_by(step) {
        analysis.at((HEADERS + offset) as u64);
    }
});
