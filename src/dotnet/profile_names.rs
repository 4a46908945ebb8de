//! Names of levels, keywords and event groups.
//!
//! `-clrevents` accepts the keywords of dotnet-trace, `-events` the event groups of the perfcollect
//! script.

/// Keywords of `Microsoft-Windows-DotNETRuntime`, from `ClrEtwAll.man` in dotnet/runtime.
pub(super) const GC: u64 = 0x1;
pub(super) const GC_HANDLE: u64 = 0x2;
pub(super) const LOADER: u64 = 0x8;
pub(super) const JIT: u64 = 0x10;
pub(super) const NGEN: u64 = 0x20;
pub(super) const CONTENTION: u64 = 0x4000;
pub(super) const EXCEPTION: u64 = 0x8000;
pub(super) const THREADING: u64 = 0x1_0000;
pub(super) const IL_MAP: u64 = 0x2_0000;
pub(super) const SURVIVAL: u64 = 0x40_0000;
pub(super) const THREAD_TRANSFER: u64 = 0x8000_0000;
pub(super) const COMPILATION: u64 = 0x10_0000_0000;
const ASSEMBLY_LOADER: u64 = 0x4;

/// Keywords by dotnet-trace's names.
const KEYWORDS: [(&str, u64); 41] = [
    ("gc", GC),
    ("gchandle", GC_HANDLE),
    ("assemblyloader", ASSEMBLY_LOADER),
    ("fusion", ASSEMBLY_LOADER),
    ("loader", LOADER),
    ("jit", JIT),
    ("ngen", NGEN),
    ("startenumeration", 0x40),
    ("endenumeration", 0x80),
    ("security", 0x400),
    ("appdomainresourcemanagement", 0x800),
    ("jittracing", 0x1000),
    ("interop", 0x2000),
    ("contention", CONTENTION),
    ("exception", EXCEPTION),
    ("threading", THREADING),
    ("jittedmethodiltonativemap", IL_MAP),
    ("overrideandsuppressngenevents", 0x4_0000),
    ("type", 0x8_0000),
    ("gcheapdump", 0x10_0000),
    ("gcsampledobjectallocationhigh", 0x20_0000),
    ("gcheapsurvivalandmovement", SURVIVAL),
    ("gcheapcollect", 0x80_0000),
    ("managedheadcollect", 0x80_0000),
    ("gcheapandtypenames", 0x100_0000),
    ("gcsampledobjectallocationlow", 0x200_0000),
    ("perftrack", 0x2000_0000),
    ("stack", 0x4000_0000),
    ("threadtransfer", THREAD_TRANSFER),
    ("debugger", 0x1_0000_0000),
    ("monitoring", 0x2_0000_0000),
    ("codesymbols", 0x4_0000_0000),
    ("eventsource", 0x8_0000_0000),
    ("compilation", COMPILATION),
    ("compilationdiagnostic", 0x20_0000_0000),
    ("methoddiagnostic", 0x40_0000_0000),
    ("typediagnostic", 0x80_0000_0000),
    ("jitinstrumentationdata", 0x100_0000_0000),
    ("profiler", 0x200_0000_0000),
    ("waithandle", 0x400_0000_0000),
    ("allocationsampling", 0x800_0000_0000),
];

/// Returns the keyword with one of dotnet-trace's names, ignoring case.
pub(super) fn keyword(name: &str) -> Option<u64> {
    let entry = KEYWORDS
        .iter()
        .find(|(keyword_name, _)| keyword_name.eq_ignore_ascii_case(name));
    entry.map(|(_, keyword)| *keyword)
}

/// Names of the levels. The index is the level.
const LEVELS: [&str; 6] = [
    "logalways",
    "critical",
    "error",
    "warning",
    "informational",
    "verbose",
];
/// The highest level.
pub(super) const VERBOSE: u32 = 5;

/// Parses a level by its value or name, ignoring case.
pub(super) fn level(value_or_name: &str) -> Option<u32> {
    let index = LEVELS
        .iter()
        .position(|name| name.eq_ignore_ascii_case(value_or_name));
    let level = match index {
        Some(level) => u32::try_from(level).ok()?,
        None => value_or_name.parse().ok()?,
    };
    (level <= VERBOSE).then_some(level)
}

/// Returns a comma-separated list of all keyword names.
pub(super) fn keyword_names() -> String {
    KEYWORDS.map(|(name, _)| name).join(", ")
}

/// Prefixes of event group names in the perfcollect script.
const RUNTIME_PREFIX: &str = "DotNETRuntime_";
const PRIVATE_PREFIX: &str = "DotNETRuntimePrivate_";

/// An event group of the perfcollect script: name, keywords, and the highest level of its events.
type Group = (&'static str, u64, u32);

const RUNTIME_GROUPS: [Group; 25] = [
    ("GCKeyword", GC, 5),
    ("GCKeyword_GCCollectOnly", GC, 4),
    ("TypeKeyword", 0x8_0000, 4),
    ("GCHeapDumpKeyword", 0x10_0000, 4),
    ("GCSampledObjectAllocationHighKeyword", 0x20_0000, 4),
    ("GCHeapSurvivalAndMovementKeyword", SURVIVAL, 4),
    ("GCHandleKeyword", GC_HANDLE, 4),
    ("GCSampledObjectAllocationLowKeyword", 0x200_0000, 4),
    ("ThreadingKeyword", THREADING, 5),
    (
        "ThreadingKeyword_ThreadTransferKeyword",
        THREADING | THREAD_TRANSFER,
        5,
    ),
    ("NoKeyword", 0, 4),
    ("ExceptionKeyword", EXCEPTION, 4),
    ("ContentionKeyword", CONTENTION, 4),
    ("StackKeyword", 0x4000_0000, 4),
    ("AppDomainResourceManagementKeyword", 0x800, 4),
    (
        "AppDomainResourceManagementKeyword_ThreadingKeyword",
        0x800 | THREADING,
        4,
    ),
    ("InteropKeyword", 0x2000, 4),
    ("JitKeyword_NGenKeyword", JIT | NGEN, 4),
    ("JitKeyword", JIT, 5),
    ("JitTracingKeyword", 0x1000, 5),
    ("JittedMethodILToNativeMapKeyword", IL_MAP, 5),
    ("LoaderKeyword", LOADER, 4),
    ("DebuggerKeyword", 0x1_0000_0000, 4),
    ("CodeSymbolsKeyword", 0x4_0000_0000, 5),
    ("CompilationKeyword", COMPILATION, 4),
];

const PRIVATE_GROUPS: [Group; 9] = [
    ("GCPrivateKeyword", GC, 5),
    ("GCPrivateKeyword_GCCollectOnly", GC, 4),
    ("BindingKeyword", 0x2, 4),
    ("LoaderHeapPrivateKeyword", 0x10, 5),
    ("GCHandlePrivateKeyword", 0x4000, 5),
    ("MulticoreJitPrivateKeyword", 0x2_0000, 4),
    ("PerfTrackPrivateKeyword", 0x2000_0000, 4),
    ("StackKeyword", 0x4000_0000, 4),
    ("StartupKeyword", 0x8000_0000, 4),
];

/// Returns an event group by its name in the perfcollect script, ignoring case: whether it belongs
/// to the private provider, its keywords and its level.
pub(super) fn group(name: &str) -> Option<(bool, u64, u32)> {
    let find = |groups: &[Group], name: &str, is_private| {
        let mut groups = groups.iter();
        let group = groups.find(|(group_name, ..)| group_name.eq_ignore_ascii_case(name));
        group.map(|&(_, keywords, level)| (is_private, keywords, level))
    };
    let without_prefix = |prefix: &str| {
        let (start, rest) = name.split_at_checked(prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then_some(rest)
    };
    match (
        without_prefix(RUNTIME_PREFIX),
        without_prefix(PRIVATE_PREFIX),
    ) {
        (Some(name), _) => find(&RUNTIME_GROUPS, name, false),
        (_, Some(name)) => find(&PRIVATE_GROUPS, name, true),
        _ if name.eq_ignore_ascii_case("threading") => {
            find(&RUNTIME_GROUPS, "ThreadingKeyword", false)
        }
        _ => None,
    }
}

/// Iterates over the names of all event groups.
pub(super) fn groups() -> impl Iterator<Item = String> {
    let prefixed = |prefix: &'static str, groups: &'static [Group]| {
        groups
            .iter()
            .map(move |(name, ..)| format!("{prefix}{name}"))
    };
    ["threading".to_owned()]
        .into_iter()
        .chain(prefixed(RUNTIME_PREFIX, &RUNTIME_GROUPS))
        .chain(prefixed(PRIVATE_PREFIX, &PRIVATE_GROUPS))
}
