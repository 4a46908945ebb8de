//! A small ELF file for tests.

/// Builds an ELF file with one executable segment: one page with the SVMA `address`.
pub(super) fn elf(address: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0, 1, 0, 0, 0]); // ET_DYN, x86-64, version 1
    put(32, &64_u64.to_le_bytes()); // program headers
    put(52, &[64, 0, 56, 0, 1, 0]); // header sizes, one program header
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]); // PT_LOAD, r-x
    put(80, &address.to_le_bytes());
    put(96, &4096_u64.to_le_bytes());
    put(104, &4096_u64.to_le_bytes());
    bytes
}
