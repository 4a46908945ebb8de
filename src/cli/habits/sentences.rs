//! What has no counterpart, and what to do instead.

const NO_SET_UP: &str = "nothing has to be installed: perfcollect needs neither perf nor LTTng; \
    `perfcollect collect NAME` captures";
const NO_VARIABLES: &str = "no variables have to be set: perfcollect names the methods of programs that already run; \
    `perfcollect collect NAME -pid PID` captures one";
const NO_SWITCHES: &str = "the switches of threads are not recorded: `perfcollect collect NAME -threadtime -pid PID` shows \
    where they wait and for how long; `perf record -e sched:sched_switch -g` records each";
const LOCKS: &str = "waits for locks are not recorded one by one: `perfcollect collect NAME -for lock-contention -pid PID` \
    shows which methods wait for them and for how long; `perf lock record` records each";
const COUNTS: &str = "`perfcollect collect NAME -hwevents -system -- COMMAND` counts, and shows where the CPU time \
    goes; `perfcollect report NAME.trace.zip -kind counters` prints the counts";

const DISKS: &str = "`perfcollect collect NAME -io -collectsec 10` follows the requests to disks; \
    `perfcollect report NAME.trace.zip -kind io` prints how many there were, and how long they took";
const PAGE_FAULTS: &str = "`perfcollect collect NAME -faults -collectsec 10` samples page faults; \
    `perfcollect report NAME.trace.zip -kind faults` prints which code has them";
const WAKEUPS: &str = "`perfcollect collect NAME -wakeups -collectsec 10` samples wake-ups; \
    `perfcollect report NAME.trace.zip -kind wakeups` prints who wakes whom";

const WAITS: &str = "`perfcollect collect NAME -threadtime -pid PID` follows where threads wait; \
    `perfcollect report NAME.trace.zip -kind threadtime` prints for what, in which code and for how long";
const QUEUES: &str = "`perfcollect collect NAME -threadtime -collectsec 10` counts the waits for a CPU of each thread, \
    in sum and not one by one; `perfcollect report NAME.trace.zip -kind threadtime -full` prints them";
const CONNECTIONS: &str = "`perfcollect collect NAME -net -collectsec 10` follows TCP connections; \
    `perfcollect report NAME.trace.zip -kind connections` prints bytes, failures, retransmissions and round-trip times";
const RESOLUTIONS: &str = "`perfcollect collect NAME -for networking -pid PID` shows name resolutions of .NET programs, and where \
    others wait for their answers";

/// Commands and sentences about them.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["install"], NO_SET_UP),
    (&["setenv"], NO_VARIABLES),
    (
        &["livetrace"],
        "events are not printed while they occur: `perfcollect collect NAME -noperf -collectsec 10`, then \
         `perfcollect view NAME -viewer events`",
    ),
    (&["stat"], COUNTS),
    (
        &["annotate"],
        "instructions are not annotated: `perfcollect collect NAME -perfdata`, then `perf annotate -i NAME.perf.data`",
    ),
    (
        &["trace", "ftrace", "strace"],
        "system calls are not traced: `perfcollect report NAME -kind syscalls` shows the CPU time in each, `perf trace` \
         lists them; -faults of `perfcollect collect` samples page faults",
    ),
    (&["lock"], LOCKS),
    (&["sched", "timechart", "kwork"], NO_SWITCHES),
    (
        &[
            "iostat",
            "biolatency",
            "biosnoop",
            "biotop",
            "blktrace",
            "iotop",
            "io",
            "disk",
            "disks",
        ],
        DISKS,
    ),
    (
        &[
            "offcputime",
            "offcpu",
            "off-cpu",
            "threadtime",
            "thread-time",
            "wall",
            "ext4slower",
            "xfsslower",
            "btrfsslower",
            "fileslower",
            "funclatency",
        ],
        WAITS,
    ),
    (&["runqlat", "runqlen", "runqslower", "cpudist"], QUEUES),
    (
        &[
            "tcplife",
            "tcpconnect",
            "tcpconnlat",
            "tcpaccept",
            "tcpretrans",
            "tcptop",
            "tcpstates",
            "tcprtt",
            "tcpdrop",
            "ss",
            "netstat",
            "connections",
        ],
        CONNECTIONS,
    ),
    (&["gethostlatency"], RESOLUTIONS),
    (&["faults", "page-faults"], PAGE_FAULTS),
    (&["wakeups", "wakeuptime", "offwaketime"], WAKEUPS),
    (
        &["inject"],
        "`perfcollect convert perf.data` names JIT code without `perf inject --jit`",
    ),
    (
        &["list", "list-profiles"],
        "what can be captured is in `perfcollect collect --help`: CPU time, page faults with -faults, counts with -hwevents and -system, and .NET events \
         by -profile, -events, -clrevents or -providers, each of which lists its names if one is wrong",
    ),
    (
        &["buildid-list", "buildid-cache", "evlist", "data", "archive"],
        "perfcollect has no counterpart of this command: `perfcollect report FILE -kind summary` shows what a recording has",
    ),
    (
        &[
            "bench", "c2c", "kallsyms", "kmem", "kvm", "mem", "probe", "test", "daemon", "kbuffer",
        ],
        "perfcollect samples CPU time and captures .NET events; this is a command of perf without a counterpart",
    ),
    (
        &["monitor", "counters"],
        "counters are not monitored: `perfcollect collect NAME -collectsec 10` prints garbage collections, exceptions, \
         lock waits and the thread pool of .NET processes",
    ),
    (
        &["gcdump", "dump"],
        "memory is not dumped: `perfcollect collect NAME -for memory-leak -pid PID` shows whether the heap grows and what is \
         allocated, `dotnet-gcdump` and `dotnet-dump` take dumps",
    ),
    (
        &["merge"],
        "several captures are not merged: one capture of the whole machine has all processes on one timeline",
    ),
];

/// Options of captures and views, and sentences about them.
const OPTIONS: &[(&[&str], &str)] = &[
    (
        &["rawevents"],
        "LTTng tracepoints are not captured: .NET events are chosen by -events, -clrevents or -providers",
    ),
    (
        &["perfopt"],
        "perf does not make the report: -perfdata writes a NAME.perf.data for `perf report`",
    ),
    (
        &["graphtype"],
        "`-viewer calltree` prints callers with their callees, `-method PATTERN` the callers and callees of a method",
    ),
    (
        &["usedefaults", "usedefault"],
        "the defaults are used anyway: leave it out",
    ),
    (
        &["perfview"],
        "NAME.trace.zip and NAME.nettrace open in PerfView as they are: leave it out",
    ),
    (
        &["tid", "t"],
        "whole processes are sampled: -pid of its process, then `perfcollect view NAME -thread TID`",
    ),
    (
        &["diagnostic-port", "dport", "dsrouter"],
        "perfcollect finds the diagnostic ports itself, also those in containers: -pid PID, -n NAME or `-- COMMAND`",
    ),
    (
        &["resume-runtime", "buffering-mode"],
        "perfcollect does not change how runtimes start and run: leave it out",
    ),
    (
        &[
            "stopping-event-provider-name",
            "stopping-event-event-name",
            "stopping-event-payload-filter",
        ],
        "an event does not stop a capture: -collectsec, or `perfcollect stop NAME` from a script",
    ),
];

/// Returns what to do instead of a command of another tool.
pub(super) fn about_command(name: &str) -> Option<&'static str> {
    find(COMMANDS, name)
}

/// Returns what to do instead of an option of another tool, which may have its value.
pub(in crate::cli) fn about_option(word: &str) -> Option<&'static str> {
    let name = word.trim_start_matches('-');
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    find(OPTIONS, &name.to_ascii_lowercase())
}

fn find(rows: &[(&[&str], &'static str)], name: &str) -> Option<&'static str> {
    let row = rows.iter().find(|(names, _)| names.contains(&name));
    row.map(|(_, sentence)| *sentence)
}
