//! Samples the system with the crate one_collect and its defaults, and writes a .nettrace. Prints its
//! cost and its contents as JSON.
//!
//! usage: one-collect-recorder OUTPUT SECONDS HZ

use std::time::Duration;

use one_collect::helpers::dotnet::{UniversalDotNetHelp, UniversalDotNetHelper};
use one_collect::helpers::exporting::formats::nettrace::NetTraceFormat;
use one_collect::helpers::exporting::graph::ExportGraph;
use one_collect::helpers::exporting::{ExportMachine, ExportSettings, UniversalExporter};

/// User and system time of this process. Fields 14 and 15 of `stat` count ticks of 10 ms.
fn cpu_s() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let words: Vec<&str> = after_name.split(' ').collect();
    let ticks = words[11].parse::<u64>()? + words[12].parse::<u64>()?;
    Ok(ticks as f64 / 100.0)
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, output, seconds, hz] = &arguments[..] else {
        anyhow::bail!("usage: one-collect-recorder OUTPUT SECONDS HZ");
    };
    let seconds = Duration::from_secs(seconds.parse()?);
    let settings = ExportSettings::default().with_cpu_profiling(hz.parse()?);
    let dotnet = UniversalDotNetHelper::default().with_dynamic_symbols();
    let universal = UniversalExporter::new(settings).with_dotnet_help(dotnet);
    let machine = universal.parse_for_duration("compare", seconds)?;
    let capturing_s = cpu_s()?;
    let mut machine = machine.borrow_mut();
    machine.capture_and_resolve_symbols();
    machine.to_net_trace(|_| true, output)?;
    let all_s = cpu_s()?;
    println!("{}", facts(&machine, capturing_s, all_s)?);
    Ok(())
}

/// Counts the frames in the crate's own graph, and lists the outermost frames with their samples.
fn facts(machine: &ExportMachine, capturing_s: f64, all_s: f64) -> anyhow::Result<serde_json::Value> {
    let cpu = machine.find_sample_kind("cpu").unwrap_or_default();
    let (mut samples, mut frames, mut jit, mut jit_named) = (0, 0, 0, 0);
    let mut outermost: Vec<(String, u64)> = Vec::new();
    for process in machine.processes() {
        let mut graph = ExportGraph::new();
        graph.add_samples(machine, process, cpu, None);
        let count = process.samples().iter().filter(|sample| sample.kind() == cpu).count() as u64;
        let total = graph.nodes()[graph.root_node()].total().max(1);
        let nodes = graph.nodes();
        for node in nodes.iter().filter(|node| node.exclusive() > 0) {
            // A sample may have a weight other than one.
            let weight = (node.exclusive() as u128 * u128::from(count) / u128::from(total)) as u64;
            let mut at = node;
            loop {
                frames += weight;
                let target = at.target();
                let module = match target.has_resolvable() {
                    true => graph.strings().from_id(graph.resolvables()[target.resolvable()].name())?,
                    false => "",
                };
                if module.contains("doublemapper") || module.contains("//anon") || module.is_empty() {
                    jit += weight;
                    jit_named += weight * u64::from(target.has_method());
                }
                if at.parent() == graph.root_node() {
                    let name = match target.has_method() {
                        true => graph.strings().from_id(target.method())?.to_owned(),
                        false => String::new(),
                    };
                    outermost.push((name, weight));
                    break;
                }
                at = &nodes[at.parent()];
            }
        }
        samples += count;
    }
    Ok(serde_json::json!({
        "capturing_s": capturing_s, "all_s": all_s, "samples": samples, "frames": frames,
        "jit": jit, "jit_named": jit_named, "outermost": outermost,
    }))
}
