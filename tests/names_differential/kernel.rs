//! The kernel's symbol list.

use std::collections::BTreeMap;

/// Names by module, then address.
pub(crate) struct Kallsyms(BTreeMap<String, BTreeMap<u64, Vec<String>>>);

impl Kallsyms {
    pub(crate) fn read() -> Self {
        let mut modules: BTreeMap<String, BTreeMap<u64, Vec<String>>> = BTreeMap::new();
        for line in std::fs::read_to_string("/proc/kallsyms").unwrap().lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            if !matches!(words[1], "t" | "T" | "w" | "W") {
                continue;
            }
            let module = words
                .get(3)
                .map_or("vmlinux", |module| module.trim_matches(['[', ']']));
            let symbols = modules.entry(module.to_owned()).or_default();
            symbols
                .entry(u64::from_str_radix(words[0], 16).unwrap())
                .or_default()
                .push(words[2].to_owned());
        }
        Self(modules)
    }

    /// Returns all names of the last function that starts at or before an address.
    pub(crate) fn at(&self, address: u64, module: &str) -> &[String] {
        let last = self
            .0
            .get(module)
            .and_then(|symbols| symbols.range(..=address).next_back());
        last.map_or(&[], |(_, names)| names)
    }

    /// Returns whether an address is behind the code of the kernel, and no module or BPF program in the list
    /// has it: a filter of system calls (seccomp) has no name.
    pub(crate) fn is_unlisted(&self, address: u64, module: &str) -> bool {
        let end = |names: &[String]| names.iter().any(|name| name == "_einittext");
        module == "vmlinux" && end(self.at(address, module))
    }

    /// Returns whether this BPF program has been unloaded since it was sampled.
    pub(crate) fn is_gone(&self, name: &str, module: &str) -> bool {
        let mut loaded = self
            .0
            .get("bpf")
            .into_iter()
            .flat_map(BTreeMap::values)
            .flatten();
        module == "bpf" && !loaded.any(|known| known == name)
    }
}
