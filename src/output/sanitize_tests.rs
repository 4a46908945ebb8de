use super::*;
use proptest::prelude::*;

#[test]
fn comm_of_known_troublemakers() {
    for (name, safe) in [
        ("dotnet", "dotnet"),
        ("a b", "a b"),
        ("x(y)", "x_y_"),
        ("Thread 1/4", "Thread 1_4"),
        ("1/2 3/4", "1_2 3_4"),
        (":-1", "_:-1"),
        ("-x", "_-x"),
        ("#x", "_#x"),
        ("[k]", "_k_"),
        ("a|b", "a_b"),
        ("naïve", "na_ve"),
        ("", "unnamed"),
        ("  ", "unnamed"),
        ("kworker/0:1-events", "kworker_0:1-events"),
    ] {
        assert_eq!(perf_comm(name), safe, "{name:?}");
    }
}

#[test]
fn comm_in_text_has_no_number_between_spaces() {
    for (name, safe) in [
        ("dotnet", "dotnet"),
        ("7", "7"),
        ("7 8", "7_8"),
        ("worker 12 b 3", "worker_12 b_3"),
        ("worker 1a", "worker 1a"),
        ("", "unnamed"),
    ] {
        assert_eq!(perf_text_comm(name), safe, "{name:?}");
    }
}

#[test]
fn symbol_of_known_troublemakers() {
    for (name, safe) in [
        ("A.B::C(int)", "A.B::C(int)"),
        ("(anonymous namespace)::f(int)", "{anonymous}::f(int)"),
        ("(int)f(x)", "{int}f(x)"),
        ("()", "{}"),
        ("[]", "{}"),
        ("[truncated]", "{truncated}"),
        ("[unclosed", "{unclosed"),
        ("f[3]", "f{3}"),
        ("f[ -3 ]", "f{ -3 }"),
        ("f[optimized, Unknown]", "f{optimized, Unknown}"),
        ("f[]", "f{}"),
        ("List`1[System.Int32]", "List`1[System.Int32]"),
        ("f+0x12", "f_0x12"),
        ("a\tb\nc", "a\\u{9}b\\u{a}c"),
        ("é", "\\u{e9}"),
        (" ", "_"),
    ] {
        assert_eq!(perf_symbol(name), safe, "{name:?}");
    }
}

#[test]
fn every_tier_that_names_have_is_one_that_the_reader_knows() {
    for (tier, word) in [
        ("QuickJitted", Some("QuickJitted")),
        ("InstrumentedTier", Some("QuickJittedInstrumented")),
        (
            "InstrumentedTierOptimized",
            Some("OptimizedTier1Instrumented"),
        ),
        ("Instrumented", None),
        ("", None),
    ] {
        assert_eq!(perf_tier(tier), word, "{tier}");
    }
}

#[test]
fn module_of_known_troublemakers() {
    for (name, safe) in [
        ("/usr/lib/libc.so.6", Some("libc.so.6")),
        ("/lib/x.so (deleted)", Some("x.so")),
        ("/memfd:doublemapper (deleted)", Some("memfd:doublemapper")),
        ("[vdso]", Some("vdso")),
        ("/tmp/perf-1.MAP", Some("perf-1_MAP")),
        ("jitted-12-3.so", Some("jitted_12-3.so")),
        ("a(b)[c]!d", Some("a_b__c__d")),
        ("my lib.so", Some("my lib.so")),
        ("x/", None),
        ("[unknown]", None),
        ("()", Some("__")),
        ("", None),
    ] {
        assert_eq!(perf_module(name).as_deref(), safe, "{name:?}");
    }
}

#[test]
fn folded_keeps_utf8_and_counts_apart() {
    assert_eq!(folded("[u8; 8]"), "[u8: 8]");
    assert_eq!(folded("operator new 12"), "operator new_12");
    assert_eq!(folded("# comment"), "_ comment");
    assert_eq!(folded("日本語::f"), "日本語::f");
    assert_eq!(folded("a\r\nb\u{202e}c\u{1b}"), "a__b_c_");
    assert_eq!(folded(""), "_");
}

#[test]
fn long_names_that_differ_at_their_end_stay_two() {
    let long = "x".repeat(2048);
    for written in [folded, perf_symbol] {
        let names = ["", "(char)", "(long)"].map(|end| written(&format!("{long}{end}")));
        assert_eq!(names[0], long);
        assert_ne!(names[1], names[2]);
        for cut in &names[1..] {
            assert!(cut.contains("xxx...") && cut.len() == long.len(), "{cut}");
        }
    }
}

#[test]
fn terminal_shows_escapes() {
    assert_eq!(terminal("a\u{1b}[31m"), "a\\u{1b}[31m");
    assert_eq!(
        terminal("x\u{9b}\u{202e}y\u{7f}"),
        "x\\u{9b}\\u{202e}y\\u{7f}"
    );
    assert!(matches!(terminal("plain ü"), Cow::Borrowed(_)));
}

#[test]
fn entry_name_is_one_plain_folder() {
    assert_eq!(entry_name("../../etc/passwd"), "_.._etc_passwd");
    assert_eq!(entry_name("a b\"c"), "a_b_c");
    assert_eq!(entry_name("..."), "capture");
}

/// Arbitrary text, with the characters that matter well represented.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[\\[\\]() /:;+0x3!|\n\t\u{85}\u{a0}é.map-]{0,20}",
        "[a-z ]{0,4}(\\[(3|-1|Optimized|unknown, ReadyToRun)\\]){0,2}",
        "(\\(anonymous namespace\\)|jitted-|[/ ]){0,3}[a-z]{0,3}(\\.map| \\(deleted\\)|\\+0x1f)?",
        "x{0,3000}",
    ]
}

proptest! {
    #[test]
    fn comm_never_looks_like_the_end_of_itself(name in hostile()) {
        let comm = perf_comm(&name);
        prop_assert!(!comm.is_empty() && comm.len() <= MAX_COMM_BYTES + 1);
        prop_assert!(comm.bytes().all(|b| b == b' ' || b.is_ascii_graphic()));
        prop_assert!(!comm.contains(['/', '(', ')', '[', ']', '|', ';']));
        prop_assert!(!comm.starts_with([':', '-', ' ']) && !comm.ends_with(' '));
        prop_assert_eq!(perf_comm(&comm), comm);
    }

    #[test]
    fn symbol_survives_the_reader(name in hostile()) {
        let symbol = perf_symbol(&name);
        prop_assert!(!symbol.is_empty());
        prop_assert!(symbol.bytes().all(|b| b == b' ' || b.is_ascii_graphic()));
        prop_assert!(!symbol.starts_with(['(', '[', ' ']) && !symbol.ends_with(' '));
        prop_assert!(!symbol.contains("+0x"));
        if let Some((_, inner)) = symbol.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) {
            let inner = inner.trim();
            prop_assert!(inner.parse::<i64>().is_err() && !TIERS.contains(&inner));
        }
    }

    #[test]
    fn module_survives_the_reader(name in hostile()) {
        if let Some(module) = perf_module(&name) {
            prop_assert!(!module.is_empty() && module.len() <= MAX_MODULE_BYTES);
            prop_assert!(module.bytes().all(|b| b == b' ' || b.is_ascii_graphic()));
            prop_assert!(!module.contains(['(', ')', '[', ']', '/', '\\', '!']));
            prop_assert!(!module.to_ascii_lowercase().ends_with(".map"));
            prop_assert!(!module.starts_with("jitted-") && module != "unknown");
            prop_assert_eq!(module.trim(), &module);
        }
    }

    #[test]
    fn folded_frame_is_one_frame(name in hostile()) {
        let frame = folded(&name);
        prop_assert!(!frame.is_empty() && !frame.contains([';', '\n', '\r']));
        prop_assert!(!frame.contains(is_unprintable) && !frame.starts_with('#'));
        prop_assert!(frame.trim_matches(' ') == frame);
        let last = frame.rsplit_once(' ').map_or("x", |(_, last)| last);
        prop_assert!(last.parse::<f64>().is_err() || last.parse::<u64>().is_err());
        prop_assert_eq!(folded(&frame), frame);
    }

    #[test]
    fn terminal_text_moves_no_cursor(name in hostile()) {
        prop_assert!(!terminal(&name).contains(is_unprintable));
    }

    #[test]
    fn entry_name_is_legal_everywhere(name in hostile()) {
        let entry = entry_name(&name);
        prop_assert!(!entry.is_empty() && !entry.starts_with('.') && !entry.contains(['/', '\\', ':']));
    }
}
