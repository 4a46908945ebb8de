//! Names of levels, and of groups of the runtime's events: those of `-clrevents`, which are dotnet-trace's, and those of `-events`, which
//! are the original perfcollect's.

/// Keywords of `Microsoft-Windows-DotNETRuntime`, as `ClrEtwAll.man` in dotnet/runtime numbers them.
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

/// Keywords by the names that dotnet-trace gives them.
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

/// The keyword of a name of dotnet-trace, in any case.
pub(super) fn keyword(name: &str) -> Option<u64> {
    let found = KEYWORDS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, keyword)| *keyword)
}

/// Levels; the number is the position.
const LEVELS: [&str; 6] = [
    "logalways",
    "critical",
    "error",
    "warning",
    "informational",
    "verbose",
];
/// The most talkative.
pub(super) const VERBOSE: u32 = 5;

/// The level of a number or a name, in any case.
pub(super) fn level(text: &str) -> Option<u32> {
    let named = LEVELS
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text));
    let level = match named {
        Some(level) => u32::try_from(level).ok()?,
        None => text.parse().ok()?,
    };
    (level <= VERBOSE).then_some(level)
}

/// All names of keywords.
pub(super) fn keywords_known() -> String {
    KEYWORDS.map(|(name, _)| name).join(", ")
}

/// Where the names of the original stand before the group's own.
const RUNTIME_PREFIX: &str = "DotNETRuntime_";
const PRIVATE_PREFIX: &str = "DotNETRuntimePrivate_";

/// A group of the original: its keywords, and the level that its most talkative event has.
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

/// What a name of the original stands for: whether of the private provider, keywords and level. Its case counts, as there.
pub(super) fn group(name: &str) -> Option<(bool, u64, u32)> {
    let of = |groups: &[Group], name: &str, is_private| {
        let mut groups = groups.iter();
        let found = groups.find(|(known, ..)| known.eq_ignore_ascii_case(name));
        found.map(|&(_, keywords, level)| (is_private, keywords, level))
    };
    let behind = |prefix: &str| {
        let (front, name) = name.split_at_checked(prefix.len())?;
        front.eq_ignore_ascii_case(prefix).then_some(name)
    };
    match (behind(RUNTIME_PREFIX), behind(PRIVATE_PREFIX)) {
        (Some(name), _) => of(&RUNTIME_GROUPS, name, false),
        (_, Some(name)) => of(&PRIVATE_GROUPS, name, true),
        _ if name.eq_ignore_ascii_case("threading") => {
            of(&RUNTIME_GROUPS, "ThreadingKeyword", false)
        }
        _ => None,
    }
}

/// All names of groups.
pub(super) fn groups() -> impl Iterator<Item = String> {
    let with = |prefix: &'static str, groups: &'static [Group]| {
        groups
            .iter()
            .map(move |(name, ..)| format!("{prefix}{name}"))
    };
    ["threading".to_owned()]
        .into_iter()
        .chain(with(RUNTIME_PREFIX, &RUNTIME_GROUPS))
        .chain(with(PRIVATE_PREFIX, &PRIVATE_GROUPS))
}
