//! Methods that the JIT compiler has made: the table that PerfView calls JITStats.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{Processes, is_of_runtime, number, sum};
use crate::dotnet::{CodeEvent, CompiledMethod, decode};
use crate::output::sanitize::{cut, terminal};
use crate::trace::{Nanos, Pid, RuntimeEvent, Tid};

/// The event with which a compilation begins.
const JITTING: u32 = 145;
/// Most compilations that are kept of a process, and most of them that are going on.
const MAX_METHODS: usize = 1 << 20;
const MAX_GOING_ON: usize = 1 << 16;
/// Longest name that is printed, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// A compilation.
#[derive(Debug)]
struct Method {
    begin: Nanos,
    ns: u64,
    il_bytes: u64,
    native_bytes: u32,
    tier: &'static str,
    name: String,
}

/// The compilations of a process.
#[derive(Debug, Default)]
struct Compiler {
    going_on: FxHashMap<(Tid, u64), (Nanos, u64)>,
    methods: Vec<Method>,
}

impl Compiler {
    fn take(&mut self, event: &RuntimeEvent) {
        if event.kind.id == JITTING {
            let (_, fields) = decode(&event.kind, &event.payload);
            let field = |name| number(&fields, name).unwrap_or(0);
            if self.going_on.len() < MAX_GOING_ON {
                let key = (event.thread, field("MethodID"));
                self.going_on
                    .insert(key, (event.time, field("MethodILSize")));
            }
            return;
        }
        let Ok(Some(CodeEvent::Loaded(method))) = CodeEvent::parse(&event.kind, &event.payload)
        else {
            return;
        };
        if !method.is_jitted || self.methods.len() >= MAX_METHODS {
            return;
        }
        // One that was made at once, such as a stub, has no beginning.
        let Some((begin, il_bytes)) = self.going_on.remove(&(event.thread, method.id)) else {
            return;
        };
        self.methods.push(Method {
            begin,
            ns: event.time.0.saturating_sub(begin.0),
            il_bytes,
            native_bytes: method.size,
            tier: method.tier.unwrap_or("Unknown"),
            name: name(&method),
        });
    }

    fn print(&self, processes: &Processes, out: &mut impl Write) -> io::Result<()> {
        if self.methods.is_empty() {
            return writeln!(
                out,
                "no methods compiled, or their events were not asked for (keyword jit, level verbose)"
            );
        }
        let all = |of: fn(&Method) -> u64| sum(self.methods.iter().map(of));
        writeln!(
            out,
            "{} methods compiled in {:.3} ms: {} bytes of IL, {} of native code",
            self.methods.len(),
            all(|method| method.ns) as f64 / 1e6,
            all(|method| method.il_bytes),
            all(|method| method.native_bytes.into())
        )?;
        let mut tiers: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for method in &self.methods {
            let (count, ns) = tiers.entry(method.tier).or_default();
            *count += 1;
            *ns = sum([*ns, method.ns]);
        }
        for (tier, (count, ns)) in tiers {
            writeln!(out, "{count:>8} {tier}, {:.3} ms", ns as f64 / 1e6)?;
        }
        writeln!(
            out,
            "{:>12} {:>10} {:>9} {:>12}  {:<26} name",
            "start", "jit ms", "IL bytes", "native bytes", "tier"
        )?;
        for method in &self.methods {
            writeln!(
                out,
                "{:>12.3} {:>10.3} {:>9} {:>12}  {:<26} {}",
                processes.ms(method.begin),
                method.ns as f64 / 1e6,
                method.il_bytes,
                method.native_bytes,
                method.tier,
                terminal(cut(&method.name, MAX_NAME_BYTES))
            )?;
        }
        Ok(())
    }
}

fn name(method: &CompiledMethod) -> String {
    format!("{}.{}", method.namespace, method.name)
}

pub(super) fn print(
    events: impl Iterator<Item = RuntimeEvent>,
    processes: &Processes,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut compilers: BTreeMap<Pid, Compiler> = BTreeMap::new();
    for event in events.filter(is_of_runtime) {
        compilers.entry(event.process).or_default().take(&event);
    }
    for (pid, compiler) in &compilers {
        processes.heading(*pid, out)?;
        compiler.print(processes, out)?;
    }
    Ok(())
}
