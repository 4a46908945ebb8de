//! Collects the methods and modules of a session. A method's module may be known only at the end.
//!
//! Events arrive some 100 ms late, samples immediately. If two methods had the same address during
//! a session, no sample can be attributed to either. This concerns freed code, so dynamic methods.

use std::collections::BTreeMap;
use std::path::Path;

use perfcollect_symbols::dotnet_name::ManagedName;
use rustc_hash::FxHashMap;

use super::code_event::{CodeEvent, CompiledMethod};
use super::method_name::{DYNAMIC_CLASS, MethodName};

/// Limits on the methods and on the bytes of their names. webapi under load has 9 000 and 2 MB.
const MAX_METHODS: usize = 1 << 16;
const MAX_NAME_BYTES: usize = 12 << 20;
/// Limit on the modules.
const MAX_MODULES: usize = 1 << 14;

/// Prefix of a type without a name, in a signature.
const UNNAMED_TYPE: &str = "pMT:";

/// Limits of a table of all code. A large program has 100 000 methods with 20 MB of names.
const MAX_ALL_METHODS: usize = 1 << 19;
const MAX_ALL_NAME_BYTES: usize = 128 << 20;

/// A code range with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodRange {
    /// The first address.
    pub start: u64,
    /// The size in bytes.
    pub size: u64,
    /// Whether the code is JIT code, not ReadyToRun code.
    pub is_jitted: bool,
    /// The method's name.
    pub name: MethodName,
}

/// Methods by present and past address.
#[derive(Debug)]
pub struct RundownTable {
    /// Code ranges by start address. They do not overlap.
    ranges: BTreeMap<u64, CodeRange>,
    modules: FxHashMap<u64, String>,
    name_bytes: usize,
    /// Number of methods beyond the limits.
    forgotten: u64,
    /// Whether it has methods of ReadyToRun code, too.
    is_of_all_code: bool,
    max_methods: usize,
    max_name_bytes: usize,
}

impl Default for RundownTable {
    /// Creates an empty table of JIT code. The image file has the names of ReadyToRun code.
    fn default() -> Self {
        Self {
            ranges: BTreeMap::new(),
            modules: FxHashMap::default(),
            name_bytes: 0,
            forgotten: 0,
            is_of_all_code: false,
            max_methods: MAX_METHODS,
            max_name_bytes: MAX_NAME_BYTES,
        }
    }
}

#[derive(Debug)]
struct CodeRange {
    end: u64,
    /// The only method of the range. `None` if there were several.
    method: Option<CompiledMethod>,
    /// Whether the name of the method is written as perfcollect shows it.
    is_formatted: bool,
}

impl RundownTable {
    /// Creates an empty table of JIT code and ReadyToRun code.
    #[must_use]
    pub fn of_all_code() -> Self {
        Self {
            is_of_all_code: true,
            max_methods: MAX_ALL_METHODS,
            max_name_bytes: MAX_ALL_NAME_BYTES,
            ..Self::default()
        }
    }

    /// Adds the method or module of an event.
    pub fn take(&mut self, event: CodeEvent) {
        self.add(event, false);
    }

    /// Adds the method or module of an event that perfcollect wrote, with names as it shows them.
    pub fn take_formatted(&mut self, event: CodeEvent) {
        self.add(event, true);
    }

    fn add(&mut self, event: CodeEvent, is_formatted: bool) {
        match event {
            CodeEvent::Loaded(method) | CodeEvent::Listed(method) | CodeEvent::Freed(method) => {
                if (method.is_jitted || self.is_of_all_code) && method.size > 0 {
                    self.insert(method, is_formatted);
                }
            }
            CodeEvent::Module { id, path } => {
                if self.modules.len() < MAX_MODULES {
                    self.modules.insert(id, path);
                }
            }
        }
    }

    fn insert(&mut self, method: CompiledMethod, is_formatted: bool) {
        let (mut start, mut end) = (
            method.start,
            method.start.saturating_add(method.size.into()),
        );
        let mut is_unique = true;
        while let Some((&range_start, range)) = self
            .ranges
            .range(..end)
            .next_back()
            .filter(|(_, range)| range.end > start)
        {
            if range
                .method
                .as_ref()
                .is_some_and(|previous| is_same(previous, &method))
            {
                return;
            }
            is_unique = false;
            (start, end) = (start.min(range_start), end.max(range.end));
            let removed = self.ranges.remove(&range_start);
            let removed = removed.and_then(|range| range.method);
            self.name_bytes -= removed.as_ref().map_or(0, name_bytes);
        }
        let bytes = if is_unique { name_bytes(&method) } else { 0 };
        if self.ranges.len() >= self.max_methods || self.name_bytes + bytes > self.max_name_bytes {
            self.forgotten += 1;
            return;
        }
        self.name_bytes += bytes;
        let method = is_unique.then_some(method);
        let range = CodeRange {
            end,
            method,
            is_formatted,
        };
        self.ranges.insert(start, range);
    }

    /// Returns the number of methods beyond the limits.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Iterates over the methods with a unique address range, in address order.
    pub fn methods(&self) -> impl Iterator<Item = MethodRange> {
        self.ranges.values().filter_map(|range| self.named(range))
    }

    /// Returns the start of the code range that contains an address, if it has a unique method.
    #[must_use]
    pub fn start_of(&self, address: u64) -> Option<u64> {
        let (&start, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end && range.method.is_some()).then_some(start)
    }

    /// Returns the method whose code range starts at an address.
    #[must_use]
    pub fn method_at(&self, start: u64) -> Option<MethodRange> {
        self.named(self.ranges.get(&start)?)
    }

    fn named(&self, range: &CodeRange) -> Option<MethodRange> {
        let method = range.method.as_ref()?;
        Some(MethodRange {
            start: method.start,
            size: method.size.into(),
            is_jitted: method.is_jitted,
            name: self.name(method, range.is_formatted),
        })
    }

    fn name(&self, method: &CompiledMethod, is_formatted: bool) -> MethodName {
        let path = self.modules.get(&method.module).map(Path::new);
        let module = path
            .and_then(Path::file_stem)
            .and_then(|name| name.to_str())
            .unwrap_or(DYNAMIC_CLASS);
        if is_formatted {
            let CompiledMethod {
                namespace,
                name,
                signature,
                ..
            } = method;
            let separator = if namespace.is_empty() { "" } else { "." };
            return MethodName {
                module: module.to_owned(),
                method: format!("{namespace}{separator}{name}{signature}"),
                tier: method.tier,
            };
        }
        format_name(method, module)
    }
}

fn is_same(a: &CompiledMethod, b: &CompiledMethod) -> bool {
    (a.id, a.start, a.size) == (b.id, b.start, b.size)
}

fn name_bytes(method: &CompiledMethod) -> usize {
    method.namespace.len() + method.name.len() + method.signature.len()
}

/// Formats a method's name through a perf map entry, which has the same parts in another order.
fn format_name(method: &CompiledMethod, module: &str) -> MethodName {
    let (namespace, name) = (&method.namespace, &method.name);
    let parameters = method.signature.find('(');
    let parameters = parameters.and_then(|at| method.signature.get(at..));
    // The runtime prints types that it created for a stub by address, which differs between
    // processes.
    let parameters = parameters.filter(|list| !list.contains(UNNAMED_TYPE));
    let entry = format!(
        "? [{module}] {namespace}::{name}{}",
        parameters.unwrap_or_default()
    );
    let formatted = ManagedName::parse(entry.as_bytes()).map(|name| name.method);
    MethodName {
        module: module.to_owned(),
        method: formatted.unwrap_or_else(|| format!("{namespace}.{name}")),
        tier: method.tier,
    }
}

#[cfg(test)]
#[path = "rundown_table_tests.rs"]
mod tests;
