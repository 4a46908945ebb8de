use super::*;

fn method(id: u64, start: u64, name: &str) -> CompiledMethod {
    CompiledMethod {
        id,
        module: 1,
        start,
        size: 0x20,
        is_jitted: true,
        tier: Some("QuickJitted"),
        namespace: "A.B`1[System.__Canon]".into(),
        name: name.into(),
        signature: "instance void  (int32,class System.String)".into(),
        version: 0,
    }
}

fn names(table: &RundownTable) -> Vec<(u64, String)> {
    let name = |code: MethodRange| {
        let MethodName { module, method, .. } = code.name;
        (code.start, format!("{module}!{method}"))
    };
    table.methods().map(name).collect()
}

#[test]
fn names_methods_with_modules_of_later_events() {
    let mut table = RundownTable::default();
    table.take(CodeEvent::Loaded(method(7, 0x100, "Run")));
    table.take(CodeEvent::Module {
        id: 1,
        path: "/app/Some.Lib.dll".into(),
    });
    table.take(CodeEvent::Listed(method(7, 0x100, "Run")));
    table.take(CodeEvent::Listed(method(8, 0x200, "Go")));
    let ready_to_run = CompiledMethod {
        is_jitted: false,
        ..method(9, 0x300, "Other")
    };
    table.take(CodeEvent::Listed(ready_to_run));
    assert_eq!(
        names(&table),
        [
            (
                0x100,
                "Some.Lib!A.B<System.__Canon>.Run(int,string)".to_owned()
            ),
            (
                0x200,
                "Some.Lib!A.B<System.__Canon>.Go(int,string)".to_owned()
            ),
        ]
    );
}

#[test]
fn names_that_perfcollect_wrote_stay_as_they_are() {
    let mut table = RundownTable::of_all_code();
    for (id, namespace, is_jitted) in [(1, "A.B<int>", true), (2, "", false)] {
        table.take_formatted(CodeEvent::Listed(CompiledMethod {
            namespace: namespace.into(),
            signature: "(int,string)".into(),
            is_jitted,
            ..method(id, id << 8, "Run")
        }));
    }
    let names = names(&table);
    let names: Vec<_> = names.iter().map(|(_, name)| name.as_str()).collect();
    let module = DYNAMIC_CLASS;
    let [nested, plain] = ["A.B<int>.Run(int,string)", "Run(int,string)"];
    assert_eq!(
        names,
        [format!("{module}!{nested}"), format!("{module}!{plain}")]
    );
    assert_eq!(
        (table.start_of(0x100), table.start_of(0x11f)),
        (Some(0x100), Some(0x100))
    );
    assert_eq!((table.start_of(0xff), table.start_of(0x120)), (None, None));
    assert!(!table.method_at(0x200).unwrap().is_jitted);
}

#[test]
fn omits_addresses_of_several_methods() {
    let mut table = RundownTable::default();
    table.take(CodeEvent::Loaded(method(1, 0x100, "One")));
    table.take(CodeEvent::Freed(method(1, 0x100, "One")));
    table.take(CodeEvent::Loaded(method(5, 0x120, "Beside")));
    assert_eq!(table.methods().count(), 2);
    table.take(CodeEvent::Loaded(method(2, 0x0f0, "Two")));
    table.take(CodeEvent::Listed(method(2, 0x0f0, "Two")));
    table.take(CodeEvent::Listed(method(1, 0x100, "One")));
    assert!(matches!(&names(&table)[..], [(0x120, name)] if name.contains("Beside")));
    let starts: Vec<_> = table.ranges.keys().copied().collect();
    assert_eq!(starts, [0xf0, 0x120]);
}

#[test]
fn limits_memory() {
    let mut table = RundownTable::default();
    for id in 0..20 {
        let long = "x".repeat(1 << 20);
        table.take(CodeEvent::Loaded(method(id, id << 8, &long)));
    }
    assert!(table.ranges.len() < 12 && table.forgotten() > 8);
    assert!(table.name_bytes <= MAX_NAME_BYTES);
}
