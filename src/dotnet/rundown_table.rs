//! The methods that a session tells of, up to its end, when their modules are known too.
//!
//! Events come some 100 ms after what they tell, samples at once. So an address that was two methods in one session is
//! neither: which of them a sample met cannot be told. That concerns code that is freed, so dynamic methods.

use std::collections::BTreeMap;
use std::path::Path;

use perfcollect_symbols::dotnet_name::ManagedName;
use rustc_hash::FxHashMap;

use super::code_event::{CodeEvent, CompiledMethod};
use super::method_name::MethodName;

/// Most methods, and bytes of their names, that are kept. webapi under load has 9 000 and 2 MB.
const MAX_METHODS: usize = 1 << 16;
const MAX_TEXT_BYTES: usize = 12 << 20;
/// Most modules.
const MAX_MODULES: usize = 1 << 14;
/// Module of what the runtime has for itself or for `DynamicMethod`, unless it tells another.
const NO_MODULE: &str = "dynamicClass";

/// A type without a name, in a signature.
const UNNAMED_TYPE: &str = "pMT:";

/// Code that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodRange {
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub size: u64,
    /// Its name.
    pub name: MethodName,
}

/// Methods by where they are, or have been.
#[derive(Debug, Default)]
pub struct RundownTable {
    /// By start; never overlapping.
    places: BTreeMap<u64, CodeRange>,
    modules: FxHashMap<u64, String>,
    text_bytes: usize,
    /// Methods that were not kept: there were too many.
    forgotten: u64,
}

#[derive(Debug)]
struct CodeRange {
    end: u64,
    /// `None`: there was more than one.
    method: Option<CompiledMethod>,
}

impl RundownTable {
    /// Takes in what an event tells.
    pub fn take(&mut self, event: CodeEvent) {
        match event {
            CodeEvent::Loaded(method) | CodeEvent::Listed(method) | CodeEvent::Freed(method) => {
                // Precompiled code is named from its file.
                if method.is_jitted && method.size > 0 {
                    self.insert(method);
                }
            }
            CodeEvent::Module { id, path } => {
                if self.modules.len() < MAX_MODULES {
                    self.modules.insert(id, path);
                }
            }
        }
    }

    fn insert(&mut self, method: CompiledMethod) {
        let (mut start, mut end) = (
            method.start,
            method.start.saturating_add(method.size.into()),
        );
        let mut alone = true;
        while let Some((&at, place)) = self
            .places
            .range(..end)
            .next_back()
            .filter(|(_, place)| place.end > start)
        {
            if place
                .method
                .as_ref()
                .is_some_and(|known| is_same(known, &method))
            {
                return;
            }
            alone = false;
            (start, end) = (start.min(at), end.max(place.end));
            let known = self.places.remove(&at).and_then(|place| place.method);
            self.text_bytes -= known.as_ref().map_or(0, text_bytes);
        }
        let bytes = if alone { text_bytes(&method) } else { 0 };
        if self.places.len() >= MAX_METHODS || self.text_bytes + bytes > MAX_TEXT_BYTES {
            self.forgotten += 1;
            return;
        }
        self.text_bytes += bytes;
        let method = alone.then_some(method);
        self.places.insert(start, CodeRange { end, method });
    }

    /// Methods that are not in the table because there were too many.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The methods that had their place for themselves, by address.
    pub fn methods(&self) -> impl Iterator<Item = MethodRange> {
        let methods = self
            .places
            .values()
            .filter_map(|place| place.method.as_ref());
        methods.map(|method| MethodRange {
            start: method.start,
            size: method.size.into(),
            name: self.name(method),
        })
    }

    fn name(&self, method: &CompiledMethod) -> MethodName {
        let path = self.modules.get(&method.module).map(Path::new);
        let module = path
            .and_then(Path::file_stem)
            .and_then(|name| name.to_str())
            .unwrap_or(NO_MODULE);
        spelled(method, module)
    }
}

fn is_same(known: &CompiledMethod, method: &CompiledMethod) -> bool {
    (known.id, known.start, known.size) == (method.id, method.start, method.size)
}

fn text_bytes(method: &CompiledMethod) -> usize {
    method.namespace.len() + method.name.len() + method.signature.len()
}

/// The name in parts, spelled as those of perf maps: the parts are the same, in another order.
fn spelled(method: &CompiledMethod, module: &str) -> MethodName {
    let (namespace, name) = (&method.namespace, &method.name);
    let parameters = method.signature.find('(');
    let parameters = parameters.and_then(|at| method.signature.get(at..));
    // Types that the runtime made up for a stub are printed by their address, which differs from process to process.
    let parameters = parameters.filter(|text| !text.contains(UNNAMED_TYPE));
    let whole = format!(
        "? [{module}] {namespace}::{name}{}",
        parameters.unwrap_or_default()
    );
    let spelled = ManagedName::parse(whole.as_bytes()).map(|name| name.method);
    MethodName {
        module: module.to_owned(),
        method: spelled.unwrap_or_else(|| format!("{namespace}.{name}")),
        tier: method.tier,
    }
}

#[cfg(test)]
mod tests {
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
    fn names_have_their_modules() {
        let mut table = RundownTable::default();
        table.take(CodeEvent::Loaded(method(7, 0x100, "Run")));
        table.take(CodeEvent::Module {
            id: 1,
            path: "/app/Some.Lib.dll".into(),
        });
        table.take(CodeEvent::Listed(method(7, 0x100, "Run")));
        table.take(CodeEvent::Listed(method(8, 0x200, "Go")));
        let precompiled = CompiledMethod {
            is_jitted: false,
            ..method(9, 0x300, "Other")
        };
        table.take(CodeEvent::Listed(precompiled));
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
    fn a_place_of_two_methods_has_no_name() {
        let mut table = RundownTable::default();
        table.take(CodeEvent::Loaded(method(1, 0x100, "One")));
        table.take(CodeEvent::Freed(method(1, 0x100, "One")));
        table.take(CodeEvent::Loaded(method(5, 0x120, "Beside")));
        assert_eq!(table.methods().count(), 2);
        table.take(CodeEvent::Loaded(method(2, 0x0f0, "Two")));
        table.take(CodeEvent::Listed(method(2, 0x0f0, "Two")));
        table.take(CodeEvent::Listed(method(1, 0x100, "One")));
        assert!(matches!(&names(&table)[..], [(0x120, name)] if name.contains("Beside")));
        let starts: Vec<_> = table.places.keys().copied().collect();
        assert_eq!(starts, [0xf0, 0x120]);
    }

    #[test]
    fn memory_has_a_limit() {
        let mut table = RundownTable::default();
        for number in 0..20 {
            let long = "x".repeat(1 << 20);
            table.take(CodeEvent::Loaded(method(number, number << 8, &long)));
        }
        assert!(table.places.len() < 12 && table.forgotten() > 8);
        assert!(table.text_bytes <= MAX_TEXT_BYTES);
    }
}
