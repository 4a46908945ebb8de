//! Formats of files, by their first bytes.

/// Magic of current files in either byte order, and of files before 2010, which has no byte order.
pub(super) const MAGICS: [&[u8; 8]; 3] = [b"PERFILE2", b"2ELIFREP", b"PERFFILE"];

/// Recognizes other formats by the first eight bytes of a file.
pub(super) fn known_format(head: &[u8]) -> Option<&'static str> {
    const FORMATS: [(&[u8], &str); 10] = [
        (b"\x1f\x8b", "it is compressed; unpack it with gunzip"),
        (b"\xfd7zXZ", "it is compressed; unpack it with unxz"),
        (
            b"\x28\xb5\x2f\xfd",
            "it is compressed; unpack it with unzstd",
        ),
        (b"BZh", "it is compressed; unpack it with bunzip2"),
        (
            b"Nettrace",
            "it is a .nettrace file, which `perfcollect view` and PerfView open, and `-o NAME.speedscope.json` converts",
        ),
        (
            b"SIMPLEPE",
            "it is a report of simpleperf; convert its perf.data",
        ),
        (b"\x7fELF", "it is a program or a library"),
        (b"PK", "it is a corrupt archive"),
        (b"{", "it is JSON"),
        (
            b"\xff\xfe",
            "it is UTF-16 text, which PowerShell writes; convert it to UTF-8",
        ),
    ];
    let format = FORMATS.iter().find(|(magic, _)| head.starts_with(magic));
    format.map(|(_, description)| *description)
}

/// Whether the first bytes of a file may be output of `perf script`.
pub(super) fn looks_like_text(head: &[u8]) -> bool {
    // Thread names may contain escape characters.
    let is_text = |byte: &u8| matches!(byte, 7..=13 | 0x1b | b' '..=b'~' | 0x80..);
    known_format(head).is_none()
        && !head.is_empty()
        && !(MAGICS.iter().any(|magic| head.starts_with(*magic)))
        && head.iter().all(is_text)
}
