//! Real debug files of the .NET 8.0.33 libraries and of NativeAOT programs.
//!
//! A server with the layout of Microsoft's provides them. perfcollect writes them to the path that
//! dotnet-symbol uses, in the directory of the file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfcollect::output::summary::ModuleSummary;

use crate::LIMIT;
use crate::program::{Program, build_id};
use crate::server::Server;
use crate::support::{Missing, Saved, Workload, cache, run, workloads};

const VERSION: &str = "8.0.33";
const COMPRESSION: &str = "libSystem.IO.Compression.Native.so";

/// Copies .NET 8.0.33 without ASP.NET. Returns the directories of its libraries and debug files.
fn dotnet(root: &Path) -> Result<(PathBuf, PathBuf), Missing> {
    const SYMBOLS: &str = "dotnet-8-native-symbols";
    let (original, symbols) = (cache().join("dotnet-8-aspnet"), cache().join(SYMBOLS));
    let libraries = Path::new("shared/Microsoft.NETCore.App").join(VERSION);
    if !original.join(&libraries).exists() || !symbols.exists() {
        return Err(Missing::Cached(SYMBOLS.into()));
    }
    for directory in [Path::new("host/fxr").join(VERSION), libraries.clone()] {
        let copy = root.join(&directory);
        fs::create_dir_all(&copy).unwrap();
        for entry in fs::read_dir(original.join(&directory)).unwrap().flatten() {
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
    }
    fs::copy(original.join("dotnet"), root.join("dotnet")).unwrap();
    Ok((root.join(libraries), symbols))
}

/// Starts a server with the debug files of these files.
fn server(files: &[(&Path, &Path)]) -> Server {
    let served = files.iter().map(|(file, debug)| {
        let key = format!("/_.debug/elf-buildid-sym-{}/_.debug", build_id(file));
        (key, fs::read(debug).unwrap())
    });
    Server::of_files(served.collect())
}

/// Captures one second of a workload. perfcollect may query only this server.
fn capture(program: &Program, workload: &mut Command, url: &str, options: &[&str]) -> Saved {
    let workload = Workload::start(workload);
    let directory = tempfile::tempdir().unwrap();
    let pid = workload.pid().to_string();
    let arguments = [
        &[
            "collect",
            "trace",
            "-quiet",
            "-collectsec",
            "1",
            "-pid",
            &pid,
        ],
        options,
    ]
    .concat();
    let mut command = program.command(arguments);
    command
        .current_dir(&directory)
        .env("_NT_SYMBOL_PATH", format!("srv*{url}"));
    run(&mut command, LIMIT).expect_success();
    Saved::open(directory, "trace")
}

/// Returns address and name of all frames of a module.
fn frames<'a>(saved: &'a Saved, module: &str) -> BTreeSet<(u64, &'a str)> {
    let text = std::str::from_utf8(&saved.perf_text).unwrap();
    let end = format!(" ({module})");
    let frames = text
        .lines()
        .filter_map(|line| line.strip_prefix('\t')?.strip_suffix(&end)?.split_once(' '));
    frames
        .map(|(address, name)| (u64::from_str_radix(address, 16).unwrap(), name))
        .collect()
}

/// Returns the symbols of a module, without PLT stubs.
fn names<'a>(saved: &'a Saved, module: &str) -> BTreeSet<&'a str> {
    let names = frames(saved, module).into_iter().map(|(_, name)| name);
    names
        .filter(|name| !name.starts_with("0x") && !name.ends_with("@plt"))
        .collect()
}

#[track_caller]
fn row<'a>(saved: &'a Saved, file: &Path) -> &'a ModuleSummary {
    let path = file.to_str().unwrap();
    let mut rows = saved.summary.modules.iter();
    rows.find(|row| row.path == path)
        .unwrap_or_else(|| panic!("no {path}: {:?}", saved.summary.modules))
}

/// Returns the output lines of `readelf` for a file.
fn readelf(option: &str, file: &Path) -> Vec<String> {
    let output = Command::new("readelf")
        .args([option, "-W"])
        .arg(file)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Checks that frames are symbolized only with the debug file.
///
/// The debug file is downloaded by the capture, or is in the directory of the file. Returns a
/// capture without the debug file and one with it.
fn captures_without_and_with_debug_file(
    program: &Program,
    start: impl Fn() -> Command,
    file: &Path,
    url: &str,
) -> [Saved; 2] {
    let fresh = |path: &str| fs::remove_dir_all(program.directory.path().join(path)).unwrap();
    let directory = file.parent().unwrap().to_str().unwrap();
    let without = capture(program, &mut start(), url, &[]);
    assert!(!row(&without, file).has_symbols);
    let downloaded = capture(program, &mut start(), url, &["-symbols", "download"]);
    fresh("cache");
    run(
        &mut program.command([
            "symbols",
            file.to_str().unwrap(),
            "-server",
            url,
            "-output",
            directory,
        ]),
        LIMIT,
    )
    .expect_success();
    fresh("cache");
    let beside = capture(program, &mut start(), url, &[]);
    for saved in [&downloaded, &beside] {
        let row = row(saved, file);
        assert!(row.has_symbols && row.frames.unresolved == 0, "{row:?}");
    }
    [without, beside]
}

/// Downloads all five debug files of the libraries.
#[test]
fn writes_dotnet_debug_files_next_to_libraries() {
    let program = need_program!();
    let (libraries, symbols) = need!(dotnet(&program.directory.path().join("dotnet")));
    let debug: Vec<PathBuf> = fs::read_dir(&symbols)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some())
        .collect();
    let placed: Vec<PathBuf> = debug
        .iter()
        .map(|path| libraries.join(path.file_name().unwrap()))
        .collect();
    let files: Vec<PathBuf> = placed.iter().map(|path| path.with_extension("")).collect();
    assert_eq!(files.len(), 5);
    let server = server(
        &files
            .iter()
            .map(PathBuf::as_path)
            .zip(debug.iter().map(PathBuf::as_path))
            .collect::<Vec<_>>(),
    );
    let mut command = program.command(["symbols", "-server", &server.url(), "-output"]);
    run(command.arg(&libraries).args(&files), LIMIT).expect_success();
    for (placed, debug) in placed.iter().zip(&debug) {
        assert!(
            fs::read(placed).unwrap() == fs::read(debug).unwrap(),
            "{}",
            placed.display()
        );
    }
}

#[test]
fn resolves_internal_functions_only_with_debug_file() {
    need_capture!();
    let program = need_program!();
    let root = program.directory.path().join("dotnet");
    let compress = need!(workloads::compress());
    let (libraries, symbols) = need!(dotnet(&root));
    let library = libraries.join(COMPRESSION);
    let server = server(&[(&library, &symbols.join(format!("{COMPRESSION}.dbg")))]);
    let start = || {
        let mut command = Command::new(root.join("dotnet"));
        command
            .arg(&compress)
            .env("DOTNET_ROOT", &root)
            .env("DOTNET_ROLL_FORWARD", "LatestMajor");
        command
    };
    let exported: BTreeSet<String> = readelf("--dyn-syms", &library)
        .iter()
        .filter_map(|line| {
            Some(
                line.split_whitespace()
                    .nth(7)?
                    .split('@')
                    .next()?
                    .to_owned(),
            )
        })
        .collect();
    let [without, with] =
        captures_without_and_with_debug_file(&program, start, &library, &server.url());
    let inner = |saved| {
        names(saved, COMPRESSION)
            .into_iter()
            .filter(|name| !exported.contains(*name))
            .count()
    };
    assert_eq!(inner(&without), 0, "{:?}", names(&without, COMPRESSION));
    assert!(inner(&with) > 3, "{:?}", names(&with, COMPRESSION));
    expect_one_row_per_function(&without, &library);
    // The server does not have the debug file of this library.
    expect_one_row_per_function(&with, &libraries.join("libcoreclr.so"));
}

/// Checks that unresolved frames have the start of their function, from the unwind information.
#[track_caller]
fn expect_one_row_per_function(saved: &Saved, file: &Path) {
    // `00000018 000000000000001c 0000001c FDE cie=00000000 pc=0000000000001000..0000000000001020`
    let ranges = readelf("--debug-dump=frames", file)
        .into_iter()
        .filter_map(|line| {
            let (start, end) = line.split_once("pc=")?.1.split_once("..")?;
            let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
            Some(start..end)
        });
    let ranges: Vec<_> = ranges.collect();
    let frames = frames(saved, file.file_name().unwrap().to_str().unwrap());
    let unnamed: Vec<_> = frames
        .into_iter()
        .filter_map(|(address, name)| {
            Some((
                address,
                u64::from_str_radix(name.strip_prefix("0x")?, 16).unwrap(),
            ))
        })
        .collect();
    for (address, shown) in &unnamed {
        let range = ranges.iter().find(|range| range.contains(address));
        assert_eq!(
            range.map(|range| range.start),
            Some(*shown),
            "{address:#x} of {}",
            file.display()
        );
    }
    let rows: BTreeSet<_> = unnamed.iter().map(|(_, shown)| shown).collect();
    println!(
        "{}: {} addresses without a name in {} functions",
        file.display(),
        unnamed.len(),
        rows.len()
    );
    assert!(!rows.is_empty() && rows.len() < unnamed.len());
}

/// Checks C# functions and C++ functions of the runtime, including inlined ones.
#[test]
#[ignore = "slow"]
fn resolves_native_aot_functions_with_debug_file() {
    need_capture!();
    for name in ["split-aot", "split-aot-events"] {
        let program = need_program!();
        let original = need!(workloads::shared(&format!("{name}/{name}")));
        let file = program.directory.path().join(name);
        fs::copy(&original, &file).unwrap();
        let server = server(&[(&file, &original.with_extension("dbg"))]);
        let start = || {
            let mut command = Command::new(&file);
            command.args(["--mode", "chain", "--seconds", "60"]);
            command
        };
        let [without, with] =
            captures_without_and_with_debug_file(&program, start, &file, &server.url());
        let chain = [
            "Modes_Chain__ChainOuter",
            "Modes_Chain__ChainMiddle",
            "Modes_Chain__ChainInner",
        ];
        assert_eq!(without.samples_under(&chain[..1]), 0);
        let inside = with.samples_under(&chain);
        assert!(
            inside * 10 > with.summary.samples * 9,
            "{inside} of {}",
            with.summary.samples
        );
        // The debug file is now in the directory of the program.
        assert!(inlined_at_start(&program, &file, &[]) > 5);
        assert_eq!(inlined_at_start(&program, &file, &["-noinline"]), 0);
        println!("{:?}", names(&with, name));
    }
}

/// Returns the number of inlined C++ functions in captures of program starts.
///
/// The runtime is active while a program starts.
fn inlined_at_start(program: &Program, file: &Path, options: &[&str]) -> usize {
    let script = "for i in 1 2 3 4 5 6 7 8; do $0 --mode chain --seconds 0.01; done";
    let command = ["--", "sh", "-c", script, file.to_str().unwrap()];
    let fixed = ["collect", "trace", "-quiet", "-freq", "5000"];
    let directory = tempfile::tempdir().unwrap();
    let mut collect = program.command([&fixed, options, &command].concat());
    run(collect.current_dir(&directory), LIMIT).expect_success();
    let saved = Saved::open(directory, "trace");
    let is_inlined = |frame: &&String| frame.contains('(') && frame.ends_with("_[i]");
    saved.stacks.keys().flatten().filter(is_inlined).count()
}
