//! Formats of real kernels, and samples made for them.

use super::format::Format;
use super::print::KernelNames;

const SOFTIRQ: &str = "name: softirq_entry\nID: 121\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:unsigned int vec;\toffset:8;\tsize:4;\tsigned:0;\n\n\
    print fmt: \"vec=%u [action=%s]\", REC->vec, __print_symbolic(REC->vec, { 0, \"HI\" }, { 1, \"TIMER\" })\n";

const PAGE: &str = "name: mm_page_alloc\nID: 9\nformat:\n\
    \tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:unsigned long gfp_flags;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:char comm[4];\toffset:24;\tsize:4;\tsigned:0;\n\
    \tfield:__data_loc char[] name;\toffset:28;\tsize:4;\tsigned:0;\n\n\
    print fmt: \"page=%p pfn=0x%lx %5d|%-4s|%s gfp=%s\", REC->pfn != -1UL ? (((struct page *)vmemmap_base) + (REC->pfn)) : \
    ((void *)0), REC->pfn, (int)REC->pfn >> 1, REC->comm, __get_str(name), (REC->gfp_flags) ? __print_flags(REC->gfp_flags, \
    \"|\", {( unsigned long)(( gfp_t)((((1UL))) << (1))), \"A\"}, { 0x40u | 1, \"B\" }, { 0, ((void *)0) } ) : \"none\"\n";

fn printed(format: &str, raw: &[u8]) -> String {
    let mut out = Vec::new();
    let names = KernelNames {
        texts: &[(0x80, "End of it".to_owned())].into_iter().collect(),
        function: &|address| {
            (0x10..0x40)
                .contains(&address)
                .then(|| ("start_it".into(), 0x10))
        },
    };
    Format::parse(format).unwrap().print(raw, &names, &mut out);
    String::from_utf8(out).unwrap()
}

fn page(pfn: u64, flags: u64) -> Vec<u8> {
    let mut raw = vec![0; 8];
    raw.extend(pfn.to_le_bytes());
    raw.extend(flags.to_le_bytes());
    raw.extend(*b"ab\0\0");
    raw.extend((32_u32 | 4 << 16).to_le_bytes());
    raw.extend(*b"name");
    raw
}

#[test]
fn expressions_of_the_kernel_are_computed() {
    let raw = [&[0; 8][..], &[1, 0, 0, 0]].concat();
    assert_eq!(printed(SOFTIRQ, &raw), "vec=1 [action=TIMER]");
    let raw = [&[0; 8][..], &[7, 0, 0, 0]].concat();
    assert_eq!(printed(SOFTIRQ, &raw), "vec=7 [action=0x7]");
    // The recording does not have its value.
    let unknown = SOFTIRQ.replace("{ 0, ", "{ SOFTIRQ_HI, ");
    assert_eq!(printed(&unknown, &[0; 12]), "vec=0 [action=0x0]");
    assert_eq!(
        printed(PAGE, &page(0x10, 0x43)),
        "page=0x10 pfn=0x10     8|ab  |name gfp=A|B"
    );
    assert_eq!(
        printed(PAGE, &page(6, 0x102)),
        "page=0x6 pfn=0x6     3|ab  |name gfp=A|0x100"
    );
    assert_eq!(
        printed(PAGE, &page(6, 0)),
        "page=0x6 pfn=0x6     3|ab  |name gfp=none"
    );
}

#[test]
fn addresses_of_the_kernel_have_names() {
    let format = "name: start\nID: 3\nformat:\n\
        \tfield:void * at;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:const char * why;\toffset:16;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"%pS %ps %p %#x %s\", (void *)REC->at, REC->at, REC->at, REC->at, REC->why\n";
    let at = |at: u64, why: u64| {
        let raw = [[0; 8], at.to_le_bytes(), why.to_le_bytes()].concat();
        printed(format, &raw)
    };
    assert_eq!(at(0x1c, 0x80), "start_it+0xc start_it 0x1c 0x1c End of it");
    assert_eq!(at(0x40, 0xabc), "0x40 0x40 0x40 0x40 abc");
    assert_eq!(at(0, 0), "0x0 0x0 (nil) 0 0");
}

/// An unknown format prints field by field; a missing value is a question mark.
#[test]
fn what_is_not_understood_is_shown() {
    let odd = SOFTIRQ.replace("__print_symbolic", "__print_odd");
    let raw = [&[0; 8][..], &[1, 0, 0, 0]].concat();
    assert_eq!(printed(&odd, &raw), "[FAILED TO PARSE] vec=1");
    assert_eq!(printed(SOFTIRQ, &[0; 8]), "[FAILED TO PARSE] vec=?");
    assert!(Format::parse("name: x").is_none());
}

#[test]
fn hostile_formats_are_refused() {
    for print in [
        "(".repeat(100_000),
        "-".repeat(100_000),
        "1 ? ".repeat(100_000),
        "\"%d\", REC->vec[REC->vec[REC->vec]]".into(),
        "\"%99999999999999999999d\", REC->vec".into(),
        "\"%*d\", -1, REC->vec".into(),
        "\"%d\", 1 / 0".into(),
        "\"%d\", 1 << 64".into(),
        "\"%d".into(),
        "\"%".into(),
        "\"".into(),
    ] {
        let (fields, _) = SOFTIRQ.split_once("print fmt").unwrap();
        let format = format!("{fields}print fmt: {print}\n");
        let text = printed(&format, &[0; 12]);
        assert!(text.len() < 400, "{text}");
    }
}
