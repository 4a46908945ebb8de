//! Measures the writers with a large trace.
//!
//! Run with `cargo test --release --test writers -- --ignored --nocapture`.

use std::time::Instant;

use perfcollect::output::summary::Summary;
use perfcollect::output::{NameStyle, flame_graph, folded, perf_text};
use perfcollect::trace::{FunctionKind, Trace};

use crate::{archive_bytes, build};

/// Creates a trace with about 10 000 stacks of 20 to 60 frames, and with names as long as .NET's.
pub(crate) fn busy_server(samples: u64) -> Trace {
    const KINDS: [FunctionKind; 4] = [
        FunctionKind::Jit,
        FunctionKind::ReadyToRun,
        FunctionKind::Native,
        FunctionKind::Kernel,
    ];
    let mut b = build::Builder::new();
    let mut random = 88_172_645_463_325_252u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let frames: Vec<_> = (0..4000)
        .map(|n| {
            let name = format!(
                "Company.Product.Area{}.Service{n}::Handle{}Async(class System.Threading.CancellationToken,int32)",
                n % 17,
                n % 5
            );
            b.named(KINDS[n % 4], ["App", "System.Private.CoreLib", "libcoreclr.so", "vmlinux"][n % 4], &name)
        })
        .collect();
    let mut stacks: Vec<Vec<_>> = vec![frames[..6].to_vec()];
    for _ in 0..10_000 {
        // A stack shares most of its callers with another one.
        let mut stack = stacks[next(stacks.len())].clone();
        stack.truncate(20 + next(30));
        for _ in 0..8 + next(8) {
            stack.push(frames[next(frames.len())]);
        }
        stacks.push(stack);
    }
    let threads: Vec<_> = (0..24)
        .map(|n| b.thread(100 + n / 8, "dotnet", 100 + n))
        .collect();
    for n in 0..samples {
        let stack = &stacks[next(10_000).min(next(10_000))];
        b.sample(
            build::START + n * 166_000 + next(50_000) as u64,
            build::MS,
            threads[next(24)],
            stack,
        );
    }
    let mut samples: Vec<_> = b.trace.samples.iter().collect();
    samples.sort_by_key(|sample| sample.time);
    b.trace.samples = samples.into_iter().collect();
    b.trace
}

#[test]
#[ignore = "measures"]
fn manual_measure_of_sixty_thousand_samples() {
    let trace = busy_server(60_000);
    let timed = |what: &str, write: &dyn Fn() -> Vec<u8>| {
        let start = Instant::now();
        let bytes = write();
        println!(
            "{what:<14} {:>12} bytes in {:?}",
            bytes.len(),
            start.elapsed()
        );
        bytes
    };
    let summary = Summary::new(&trace);
    timed("perf.data.txt", &|| {
        let mut out = Vec::new();
        perf_text::write(&trace, &mut out).unwrap();
        out
    });
    timed("stacks.folded", &|| {
        let mut out = Vec::new();
        folded::write(&trace, &mut out).unwrap();
        out
    });
    let svg = timed("flamegraph.svg", &|| {
        let mut out = Vec::new();
        flame_graph::write(&trace, NameStyle::Full, "busy server", &mut out).unwrap();
        out
    });
    timed("summary.json", &|| {
        serde_json::to_vec_pretty(&Summary::new(&trace)).unwrap()
    });
    let zip = timed("trace.zip", &|| archive_bytes(&trace, &summary));
    if let Some(dir) = std::env::var_os("KEEP_IN") {
        let dir = std::path::PathBuf::from(dir);
        std::fs::write(dir.join("flamegraph.svg"), svg).unwrap();
        std::fs::write(dir.join("measure.trace.zip"), zip).unwrap();
    }
}
