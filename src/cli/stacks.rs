//! `perfcollect stacks`: what all threads of a process do at this moment.
use std::sync::Arc;
use clap::Args;
use super::arguments::pid;
use crate::capture::{self, Signals};
use crate::symbolize;
use crate::trace::Pid;
use crate::output::label;
#[derive(Args, Debug)]
pub(super) struct StacksOptions {
    #[arg(short, long, value_name = "P[,P...]", value_delimiter = ',', value_parser = pid)]
    pid: Vec<Pid>,
}
pub(super) fn run(options: &StacksOptions) -> Result<(), String> {
    let signals = Signals::install().map_err(|e| e.to_string())?;
    let t = std::time::Instant::now();
    let naming = symbolize::Options { inlined: true, ..Default::default() };
    let symbolizer = Arc::new(symbolize::elf::unwind_symbolizer(&naming));
    let s = capture::snapshot(&options.pid, &symbolizer, &signals).map_err(|e| e.to_string())?;
    let t1 = t.elapsed();
    let trace = symbolize::symbolize(s.capture, &naming, &|| false).map_err(|_| "x".to_string())?;
    eprintln!("{t1:?} {:?} {:?}", t.elapsed(), s.no_samples);
    let samples: Vec<_> = trace.samples.iter().collect();
    for th in &s.threads {
        println!("{} {:?} since {:?} moved {}", th.tid.0, th.activity, th.since, th.has_moved);
        if let Some(i) = th.sample { for f in trace.stacks.leaf_first(samples[i].stack) { for fun in trace.functions_leaf_first(f) {
            println!("      {}!{}", label::module(&trace.functions[fun.index()]), label::name(&trace, f, fun)); } } }
    }
    println!("{:?}", trace.quality.stacks);
    for n in &trace.quality.notices { println!("{} {}", n.what, n.remedy); }
    Ok(())
}
