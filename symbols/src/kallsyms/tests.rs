#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use proptest::prelude::*;
use std::io::BufReader;
use test_skip::{Missing, skip};

const SAMPLE: &[u8] = b"\
0000000000000000 A fixed_percpu_data\n\
ffffffff81000000 T _stext\n\
ffffffff81000000 t startup\n\
ffffffff81000000 T startup_64\n\
ffffffff81000100 W weak_one\n\
ffffffff81000200 D some_data\n\
ffffffffc0201800 t late\t[mod]\n\
ffffffffc0201000 t early\t[mod]\n\
ffffffffc0300000 t bpf_prog_6deef7357e7b4530_sd_fw\t[bpf]\n";

fn found(symbols: &KernelSymbols, address: u64) -> Option<(String, Option<String>)> {
    let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    symbols
        .lookup(address)
        .map(|found| (string(found.symbol.name), found.module.map(string)))
}

#[test]
fn resolves_functions_and_their_modules() {
    let symbols = KernelSymbols::read(SAMPLE).unwrap();
    let named =
        |name: &str, module: Option<&str>| Some((name.to_owned(), module.map(str::to_owned)));
    assert_eq!(
        found(&symbols, 0xffff_ffff_8100_0010),
        named("startup_64", None)
    );
    assert_eq!(
        found(&symbols, 0xffff_ffff_c020_17ff),
        named("early", Some("mod"))
    );
    assert_eq!(
        found(&symbols, 0xffff_ffff_c020_1900),
        named("late", Some("mod"))
    );
    assert_eq!(
        found(&symbols, 0xffff_ffff_c030_0001),
        named("bpf_prog_6deef7357e7b4530_sd_fw", Some("bpf"))
    );
    assert_eq!(symbols.skipped(), 0);
}

#[test]
fn last_function_before_a_gap_does_not_extend_over_it() {
    let symbols = KernelSymbols::read(SAMPLE).unwrap();
    assert_eq!(found(&symbols, 0xffff_ffff_9000_0000), None);
    assert_eq!(
        symbols.lookup(0xffff_ffff_8100_0100).unwrap().symbol.end,
        0xffff_ffff_8100_2000
    );
}

/// Lines may be in any order, and several addresses may be in one function.
#[test]
fn read_for_resolves_addresses_like_read() {
    let list = std::fs::read("/proc/kallsyms").unwrap_or_default();
    for list in [SAMPLE, &list] {
        let Ok(all) = KernelSymbols::read(list) else {
            return skip(Missing::KernelAddresses);
        };
        let addresses: Vec<_> = all
            .iter()
            .step_by(1 + all.len() / 2000)
            .flat_map(|found| [0, 1, 0x40, 0x1000, 0x20_0000].map(|at| found.symbol.start + at))
            .chain([0, u64::MAX])
            .collect();
        let filtered = KernelSymbols::read_for(list, &addresses).unwrap();
        for address in addresses {
            let resolved = found(&filtered, address);
            assert_eq!(resolved, found(&all, address), "{address:#x}");
        }
    }
}

#[test]
fn rejects_a_list_whose_addresses_are_all_zero() {
    let list: &[u8] = b"0000000000000000 T _stext\n0000000000000000 t x\t[mod]\n";
    let error = KernelSymbols::read(list).unwrap_err();
    assert!(
        matches!(error, KallsymsError::Restricted { functions: 2 }),
        "{error}"
    );
}

#[test]
fn address_of_stops_at_the_first_symbol_of_the_name() {
    struct Fails;
    impl std::io::Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("read too far"))
        }
    }
    let list: &[u8] =
        b"nonsense\n1000 D _stext\n2000 T _stext_not\n2800 T name\t[mod]\n3000 T name\n";
    let find = |name: &[u8]| {
        let rest = std::io::BufReader::new(std::io::Read::chain(list, Fails));
        address_of(name, rest).map_err(|error| error.to_string())
    };
    assert_eq!(find(b"_stext"), Ok(Some(0x1000)));
    assert_eq!(find(b"name"), Ok(Some(0x2800)));
    assert_eq!(find(b"_ste"), Err("read too far".to_owned()));
    assert_eq!(address_of(b"_ste", list).unwrap(), None);
}

#[test]
fn counts_malformed_lines() {
    let list: &[u8] = b"nonsense\nffff T\nxyz T a\n1000 TT a\n1000 T a [mod\n1000 T good\n\n";
    let symbols = KernelSymbols::read(list).unwrap();
    assert_eq!((symbols.len(), symbols.skipped()), (1, 5));
    assert!(KernelSymbols::read(&b""[..]).unwrap().is_empty());
}

#[test]
fn finds_every_function_of_the_running_kernel_at_its_start() {
    let list = std::fs::read("/proc/kallsyms").unwrap_or_default();
    let symbols = match KernelSymbols::read(BufReader::new(list.as_slice())) {
        Ok(symbols) => symbols,
        Err(_) => return skip(Missing::KernelAddresses),
    };
    let mut functions = 0;
    for line in list.split(|&byte| byte == b'\n').filter_map(parse_line) {
        if matches!(line.kind, b't' | b'T' | b'w' | b'W') {
            functions += 1;
            let found = symbols
                .lookup(line.address)
                .expect("a symbol at the start of a function");
            assert_eq!(found.symbol.start, line.address);
        }
    }
    eprintln!(
        "{functions} functions, {} distinct starts, {} skipped",
        symbols.len(),
        symbols.skipped()
    );
    assert_eq!(symbols.skipped(), 0);
}

proptest! {
    #[test]
    fn never_panics_on_mutated_text(edits in prop::collection::vec((0..SAMPLE.len(), any::<u8>()), 0..20)) {
        let mut list = SAMPLE.to_vec();
        for (at, byte) in edits {
            list[at] = byte;
        }
        if let Ok(symbols) = KernelSymbols::read(list.as_slice()) {
            prop_assert!(symbols.iter().all(|found| found.symbol.start < found.symbol.end));
        }
    }
}
