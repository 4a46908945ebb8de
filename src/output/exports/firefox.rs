//! Profile of the Firefox Profiler, in version 63 of its processed format: the newest that Perfetto's
//! viewer reads as well. The profiler upgrades older versions.

use std::io::{self, Write};

use super::calls::{Calls, Code, NONE};
use super::firefox_markers::{self, Markers};
use super::firefox_threads;
use super::json::{self, Scaled};
use super::modules::Modules;
use super::quality;
use super::tracks::Tracks;
use super::weights::Weights;
use crate::output::short_name::NameStyle;
use crate::trace::{FunctionKind, Trace};

const VERSION: u32 = 63;

/// Maximum number of threads: the viewer has a row for each.
const MAX_THREADS: usize = 1000;

/// Number of threads that the viewer shows at first.
const MAX_VISIBLE: usize = 20;

/// Name and colour of the categories. The first one is the default.
const CATEGORIES: [(&str, &str); 6] = [
    ("Other", "grey"),
    ("Kernel", "orange"),
    ("Native", "yellow"),
    ("JIT", "green"),
    ("ReadyToRun", "lightblue"),
    ("Unresolved", "magenta"),
];

fn category(code: &Code) -> usize {
    match code.kind {
        FunctionKind::Marker | FunctionKind::Blocked | FunctionKind::Group => 0,
        _ if code.is_offset => 5,
        FunctionKind::Kernel => 1,
        FunctionKind::Native => 2,
        FunctionKind::Jit => 3,
        FunctionKind::ReadyToRun => 4,
        FunctionKind::Unmapped => 5,
    }
}

pub(super) fn write(
    trace: &Trace,
    names: NameStyle,
    title: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let calls = Calls::new(trace, names);
    let modules = Modules::new(trace, &calls.codes);
    let threads = Tracks::threads(trace, MAX_THREADS);
    out.write_all(b"{\"meta\":")?;
    write_meta(trace, title, threads.rows().len(), out)?;
    out.write_all(b",\"libs\":")?;
    json::each(out, modules.rows(), |out, module| {
        out.write_all(b"{\"name\":")?;
        json::string(out, &module.name)?;
        out.write_all(b",\"debugName\":")?;
        json::string(out, &module.name)?;
        out.write_all(b",\"path\":")?;
        json::string(out, &module.path)?;
        out.write_all(b",\"debugPath\":")?;
        json::string(out, &module.path)?;
        out.write_all(b",\"codeId\":")?;
        json::string(out, &module.build_id)?;
        out.write_all(b",\"breakpadId\":\"\",\"arch\":null}")
    })?;
    out.write_all(b",\"shared\":")?;
    write_tables(&calls, &modules, out)?;
    out.write_all(b",\"threads\":[")?;
    let mut markers = Markers::new(trace, calls.codes.len() + modules.rows().len());
    let mut is_first = true;
    threads.for_each(|track, samples| {
        if !std::mem::take(&mut is_first) {
            out.write_all(b",")?;
        }
        firefox_threads::write(trace, &calls, (track, samples), &mut markers, out)
    })?;
    out.write_all(b"],\"pages\":[],\"profilerOverhead\":[],\"counters\":[]}")
}

fn write_meta(trace: &Trace, title: &str, threads: usize, out: &mut impl Write) -> io::Result<()> {
    let info = &trace.info;
    let ms = |ns: u64| Scaled {
        ns: i64::try_from(ns).unwrap_or(i64::MAX),
        digits: 6,
    };
    write!(
        out,
        "{{\"preprocessedProfileVersion\":{VERSION},\"version\":30,\"interval\":{},\"startTime\":{},\
         \"startTimeAsClockMonotonicNanosecondsSinceBoot\":{},\"processType\":0,\"stackwalk\":1,\
         \"debug\":false,\"symbolicated\":true,\"usesOnlyOneStackType\":true,\
         \"sourceCodeIsNotOnSearchfox\":true,\"keepProfileThreadOrder\":true,\"logicalCPUs\":{},\
         \"markerSchema\":{},\"extensions\":{{\"id\":[],\"name\":[],\"baseURL\":[],\"length\":0}}",
        ms(info.period_ns),
        ms(info.start_unix_ns),
        info.start_ns,
        info.cpus,
        firefox_markers::SCHEMA,
    )?;
    let time_unit = match Weights::new(trace).is_time {
        true => ",\"threadCPUDelta\":\"ns\"",
        false => "",
    };
    write!(
        out,
        ",\"sampleUnits\":{{\"time\":\"ms\",\"eventDelay\":\"ms\"{time_unit}}}"
    )?;
    let importer = format!("perfcollect {}", info.version);
    for (key, text) in [
        ("product", title),
        ("arguments", &info.target),
        ("oscpu", &format!("Linux {} {}", info.kernel, info.arch)),
        ("importedFrom", &importer),
    ] {
        write!(out, ",\"{key}\":")?;
        json::string(out, text)?;
    }
    out.write_all(b",\"initialSelectedThreads\":")?;
    json::list(out, 0..threads.min(1))?;
    out.write_all(b",\"initialVisibleThreads\":")?;
    json::list(out, 0..threads.min(MAX_VISIBLE))?;
    out.write_all(b",\"categories\":")?;
    json::each(out, CATEGORIES, |out, (name, color)| {
        write!(
            out,
            "{{\"name\":\"{name}\",\"color\":\"{color}\",\"subcategories\":[\"Other\"]}}"
        )
    })?;
    out.write_all(b",\"extra\":[{\"label\":\"Quality\",\"entries\":")?;
    let lines = quality::lines(trace);
    json::each(out, (1..).zip(&lines), |out, (number, line)| {
        write!(
            out,
            "{{\"label\":\"{number}\",\"format\":\"string\",\"value\":"
        )?;
        json::string(out, line)?;
        out.write_all(b"}")
    })?;
    out.write_all(b"}]}")
}

/// Writes the tables that all threads share. A function, its frame and its name have one row.
fn write_tables(calls: &Calls, modules: &Modules, out: &mut impl Write) -> io::Result<()> {
    let (codes, libs) = (&calls.codes, modules.rows());
    let count = codes.len();
    out.write_all(b"{\"stringArray\":")?;
    let names = codes.iter().map(|code| &*code.name);
    let names = names.chain(libs.iter().map(|module| &*module.name));
    json::strings(out, names.chain(firefox_markers::NAMES))?;
    out.write_all(b",\"stackTable\":{\"frame\":")?;
    json::list(out, calls.nodes().iter().map(|(_, code)| code))?;
    out.write_all(b",\"prefix\":")?;
    json::each(out, calls.nodes(), |out, &(caller, _)| match caller {
        NONE => out.write_all(b"null"),
        caller => write!(out, "{caller}"),
    })?;
    write!(out, ",\"length\":{}}}", calls.nodes().len())?;

    out.write_all(b",\"frameTable\":{\"func\":")?;
    json::list(out, 0..count)?;
    out.write_all(b",\"category\":")?;
    json::list(out, codes.iter().map(category))?;
    for (column, text) in [
        ("address", "-1"),
        ("inlineDepth", "0"),
        ("subcategory", "0"),
        ("nativeSymbol", "null"),
        ("innerWindowID", "0"),
        ("line", "null"),
        ("column", "null"),
    ] {
        write!(out, ",\"{column}\":")?;
        json::repeat(out, text, count)?;
    }
    write!(out, ",\"length\":{count}}},\"funcTable\":{{\"name\":")?;
    json::list(out, 0..count)?;
    out.write_all(b",\"resource\":")?;
    json::each(out, codes, |out, code| match modules.row(&code.module) {
        Some(row) => write!(out, "{row}"),
        None => out.write_all(b"-1"),
    })?;
    for (column, text) in [
        ("isJS", "false"),
        ("relevantForJS", "false"),
        ("source", "null"),
        ("lineNumber", "null"),
        ("columnNumber", "null"),
    ] {
        write!(out, ",\"{column}\":")?;
        json::repeat(out, text, count)?;
    }
    write!(out, ",\"length\":{count}}},\"resourceTable\":{{\"lib\":")?;
    json::list(out, 0..libs.len())?;
    out.write_all(b",\"name\":")?;
    json::list(out, count..count + libs.len())?;
    out.write_all(b",\"host\":")?;
    json::repeat(out, "null", libs.len())?;
    out.write_all(b",\"type\":")?;
    json::repeat(out, "1", libs.len())?;
    write!(out, ",\"length\":{}}}", libs.len())?;
    out.write_all(
        b",\"nativeSymbols\":{\"libIndex\":[],\"address\":[],\"name\":[],\"functionSize\":[],\"length\":0},\
          \"sources\":{\"id\":[],\"filename\":[],\"startLine\":[],\"startColumn\":[],\
          \"sourceMapURL\":[],\"length\":0}}",
    )
}
