//! Synthetic traces.

use perfcollect::trace::{
    Cpu, Frame, FrameId, Function, FunctionId, FunctionKind, Nanos, Pid, Process, ProcessId,
    Sample, Thread, ThreadId, Tid, Trace,
};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const START: u64 = 4_321_987_654_321;
/// Start of the trace's clock in nanoseconds since 1970: a whole second.
pub(crate) const BOOT_UNIX: u64 = 1_700_000_000_000_000_000;

pub(crate) struct Builder {
    pub(crate) trace: Trace,
    next_address: u64,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let mut trace = Trace::default();
        trace.info.event = "cpu-clock".to_owned();
        trace.info.target = "system-wide".to_owned();
        trace.info.period_ns = MS;
        trace.info.start_ns = START;
        trace.info.start_unix_ns = BOOT_UNIX + START;
        trace.info.end_ns = START + 10_000 * MS;
        Self {
            trace,
            next_address: 0x7f12_0000_1000,
        }
    }

    pub(crate) fn thread(&mut self, pid: i32, process: &str, tid: i32) -> ThreadId {
        let same = |p: &Process| p.pid == Pid(pid) && &*p.name == process;
        let row = self
            .trace
            .processes
            .iter()
            .position(same)
            .unwrap_or_else(|| {
                self.trace.processes.push(Process {
                    pid: Pid(pid),
                    name: process.into(),
                    command_line: format!("/usr/bin/{process} --flag").into(),
                    ended: None,
                });
                self.trace.processes.len() - 1
            });
        self.trace.threads.push(Thread {
            process: ProcessId(row as u32),
            tid: Tid(tid),
            name: ".NET TP Worker".into(),
        });
        ThreadId(self.trace.threads.len() as u32 - 1)
    }

    pub(crate) fn function(&mut self, kind: FunctionKind, module: &str, name: &str) -> FunctionId {
        self.push(Function {
            name: Some(name.into()),
            module: module.into(),
            tier: None,
            kind,
            start: None,
            inlined: false,
        })
    }

    pub(crate) fn push(&mut self, function: Function) -> FunctionId {
        self.trace.functions.push(function);
        FunctionId(self.trace.functions.len() as u32 - 1)
    }

    /// Adds a frame with functions, outermost first.
    pub(crate) fn frame(&mut self, functions: &[FunctionId]) -> FrameId {
        let start = self.trace.frame_functions.len() as u32;
        self.trace.frame_functions.extend(functions);
        self.next_address += 0x40;
        self.trace.frames.push(Frame {
            offset: self.next_address & 0xfff_ffff,
            functions: start..start + functions.len() as u32,
        });
        FrameId(self.trace.frames.len() as u32 - 1)
    }

    /// Adds a frame with a new function.
    pub(crate) fn named(&mut self, kind: FunctionKind, module: &str, name: &str) -> FrameId {
        let function = self.function(kind, module, name);
        self.frame(&[function])
    }

    pub(crate) fn sample(
        &mut self,
        time: u64,
        weight: u64,
        thread: ThreadId,
        root_first: &[FrameId],
    ) {
        let stack = self.trace.stacks.intern(root_first.iter().copied());
        self.trace.samples.push(Sample {
            time: Nanos(time),
            weight: Nanos(weight),
            thread,
            cpu: Cpu(thread.0 % 4),
            stack,
        });
    }
}

/// Creates a trace with all kinds of frames.
///
/// They are kernel, native, two tiers of a method, ReadyToRun, inlined, unresolved and truncated
/// frames. Samples of several threads overlap, pause and jitter.
pub(crate) fn realistic() -> Trace {
    use FunctionKind::{Jit, Kernel, Marker, Native, ReadyToRun, Unmapped};
    let mut b = Builder::new();
    let start = b.named(Native, "libc.so.6", "__libc_start_main");
    let main = b.named(
        ReadyToRun,
        "App",
        "App.Program::Main(class System.String[])",
    );
    let method = |tier: &str| Function {
        name: Some("App.Work::Spin(int32)".into()),
        module: "App".into(),
        tier: Some(tier.into()),
        kind: Jit,
        start: None,
        inlined: false,
    };
    let quick = b.push(method("QuickJitted"));
    let quick = b.frame(&[quick]);
    let tier1_function = b.push(method("OptimizedTier1"));
    let tier1 = b.frame(&[tier1_function]);
    let inlined = b.push(Function {
        name: Some("App.Math::Mix(int32)".into()),
        tier: None,
        inlined: true,
        ..method("")
    });
    let with_inlined = b.frame(&[tier1_function, inlined]);
    let unnamed = Function {
        name: None,
        module: "libhidden.so".into(),
        tier: None,
        kind: Native,
        start: None,
        inlined: false,
    };
    let stripped = b.push(Function {
        start: Some(0x1230),
        ..unnamed.clone()
    });
    let (stripped, stripped_again) = (b.frame(&[stripped]), b.frame(&[stripped]));
    let unnamed = b.push(unnamed);
    let (hidden, hidden_again) = (b.frame(&[unnamed]), b.frame(&[unnamed]));
    let nowhere = b.push(Function {
        name: None,
        module: "".into(),
        tier: None,
        kind: Unmapped,
        start: None,
        inlined: false,
    });
    let nowhere = b.frame(&[nowhere]);
    let truncated = b.named(Marker, "", "[truncated]");
    let syscall = b.named(Kernel, "vmlinux", "entry_SYSCALL_64_after_hwframe");
    let read = b.named(Kernel, "vmlinux", "ksys_read");

    let app = b.thread(100, "dotnet", 100);
    let worker = b.thread(100, "dotnet", 107);
    let other = b.thread(200, "postgres: a b", 200);
    let stacks: [(ThreadId, Vec<FrameId>); 11] = [
        (app, vec![start, main, quick]),
        (app, vec![start, main, tier1]),
        (app, vec![start, main, with_inlined]),
        (app, vec![start, main, tier1, tier1, tier1]),
        (worker, vec![start, main, syscall, read]),
        (worker, vec![truncated, hidden]),
        (worker, vec![truncated, hidden_again]),
        (worker, vec![start, stripped]),
        (worker, vec![start, stripped_again]),
        (other, vec![start, nowhere]),
        (other, vec![]),
    ];
    let mut time = START;
    for round in 0..400u64 {
        let (thread, stack) = &stacks[(round % 11) as usize];
        time += match round * 7 % 5 {
            0 => 1_000_137,
            1 => 999_950,
            2 => 40_000,
            3 => 0,
            _ => 25 * MS,
        };
        b.sample(
            time,
            if round % 7 == 0 { 2 * MS } else { MS },
            *thread,
            stack,
        );
    }
    b.trace
}

/// Problematic process names, each with the name that PerfView displays.
pub(crate) const HOSTILE_COMMS: [(&str, &str); 14] = [
    ("a b", "a b"),
    ("x(y)", "x_y_"),
    ("1/2 3/4", "1_2 3_4"),
    ("[k]", "_k_"),
    (":-1", "_:-1"),
    ("Thread 1/4", "Thread 1_4"),
    ("line\nbreak", "line_break"),
    ("naïve", "na_ve"),
    ("a;b|c", "a_b_c"),
    ("7 8", "7_8"),
    ("#7", "_#7"),
    ("x", "x"),
    ("", "unnamed"),
    ("\u{1b}[31m\u{7}", "__31m_"),
];

pub(crate) const HOSTILE_FUNCTIONS: [(&str, &str, &str); 16] = [
    (
        "libx.so",
        "(anonymous namespace)::f(int)",
        "libx.so!{anonymous}::f(int)",
    ),
    ("/lib/x.so (deleted)", "gone", "x.so!gone"),
    ("[vdso]", "__vdso_gettime", "vdso!__vdso_gettime"),
    ("perf-12.map", "App.A::B()", "perf-12_map!App.A::B()"),
    ("jitted-1-2.so", "void f()", "jitted_1-2.so!void f()"),
    ("m", "f[3]", "m!f{3}"),
    ("m", "()", "m!{}"),
    ("m", "[]", "m!{}"),
    ("m", "(x)", "m!{x}"),
    ("m", "f+0x10", "m!f_0x10"),
    (
        "m",
        "tab\there\nand\u{0}there",
        "m!tab\\u{9}here\\u{a}and\\u{0}there",
    ),
    ("m", "日本", "m!\\u{65e5}\\u{672c}"),
    (
        "a(b)!c",
        "</script><script>alert(1)</script>",
        "a_b__c!</script><script>alert(1)</script>",
    ),
    ("m", "a;b;c 5", "m!a;b;c 5"),
    ("m", "]]> & \"'", "m!]]> & \"'"),
    ("m", "# \u{202e}bidi", "m!# \\u{202e}bidi"),
];

/// Creates a trace with a process for each problematic name, which runs all problematic functions.
pub(crate) fn hostile() -> Trace {
    let mut b = Builder::new();
    let frames =
        HOSTILE_FUNCTIONS.map(|(module, name, _)| b.named(FunctionKind::Native, module, name));
    let long = b.named(
        FunctionKind::Native,
        &"M".repeat(65_536),
        &"N".repeat(65_536),
    );
    let mut time = START;
    for (number, (comm, _)) in HOSTILE_COMMS.iter().enumerate() {
        let thread = b.thread(1000 + number as i32, comm, 1000 + number as i32);
        for frame in frames.iter().chain([&long]) {
            time += 300_000;
            b.sample(time, MS, thread, &[long, *frame]);
        }
    }
    b.trace
}
