//! The Firefox Profiler. It counts samples.

use crate::support::{FirefoxProfiler, FirefoxStacks};
use crate::{Frame, Text, expect_same, reader, texts, without_tier};

fn expected(text: &Text) -> FirefoxStacks {
    let mut stacks = FirefoxStacks::new();
    for sample in &text.samples {
        let frames = sample.stack.iter();
        let stack = frames.map(|Frame { module, name }| match name.starts_with("0x") {
            true => format!("{name} (in {module})"),
            false => format!("{module}!{name}"),
        });
        let thread = (sample.process.clone(), sample.pid.to_string(), sample.tid);
        *stacks
            .entry((thread.0, thread.1, thread.2, stack.collect()))
            .or_default() += 1;
    }
    stacks
}

#[test]
fn firefox_profiler_finds_each_sample() {
    let cli = need!(reader("node", "firefox-profiler/dist/profiler-cli.js"));
    for text in texts() {
        let file = text.file();
        let shown = FirefoxProfiler::load(cli.clone(), file.path()).stacks();
        let shown = shown
            .into_iter()
            .map(|((process, pid, tid, stack), samples)| {
                let stack = stack.iter().map(|name| without_tier(name).to_owned());
                ((process, pid, tid, stack.collect()), samples)
            });
        let mut stacks = FirefoxStacks::new();
        for (stack, samples) in shown {
            *stacks.entry(stack).or_default() += samples;
        }
        expect_same(&stacks, &expected(&text));
    }
}
