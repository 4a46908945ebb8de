//! Downloads of debug files from servers on loopback.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;
macro_rules! need_program {
    () => {
        need!($crate::program::Program::new())
    };
}

fn server_of(program: &Program) -> Server {
    Server::of_files(vec![(program.key(), program.debug.clone())])
}

#[path = "downloads/captures.rs"]
mod captures;
#[path = "downloads/dotnet.rs"]
mod dotnet;
#[path = "downloads/misbehaving.rs"]
mod misbehaving;
#[path = "downloads/program.rs"]
mod program;
#[path = "downloads/real_servers.rs"]
mod real_servers;
#[path = "downloads/server.rs"]
mod server;

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use program::Program;
use server::{Server, send, send_from, status};
use support::{Missing, run, workloads};

const LIMIT: Duration = Duration::from_secs(60);
/// User id of `nobody`.
const NOBODY: u32 = 65534;

#[test]
fn downloads_from_symbol_server_and_caches_file() {
    let program = need_program!();
    let server = server_of(&program);
    let output = program
        .get(&server.url(), &["-output", "out/here"])
        .expect_success();
    assert!(
        output.stderr.contains(&program.build_id),
        "{}",
        output.stderr
    );
    let beside = program.directory.path().join("out/here/native-app.dbg");
    for path in [&program.cached(), &beside] {
        assert_eq!(fs::read(path).unwrap(), program.debug, "{}", path.display());
    }
    assert_eq!(server.take_requests().len(), 1);
    assert_eq!(program.files_in_cache(), [program.cached()]);

    let again = program
        .get(&server.url(), &["-output", "out/here"])
        .expect_success();
    assert!(again.stderr.contains("already in"), "{}", again.stderr);
    assert_eq!(server.take_requests(), []);

    // A corrupt file in the cache is replaced.
    fs::write(program.cached(), "corrupt").unwrap();
    program.get(&server.url(), &[]).expect_success();
    assert_eq!(fs::read(program.cached()).unwrap(), program.debug);
}

#[test]
fn replaces_other_file_only_with_force() {
    let program = need_program!();
    let server = server_of(&program);
    let existing = program.directory.path().join("native-app.dbg");
    fs::write(&existing, "mine").unwrap();
    let refused = program.get(&server.url(), &["-output", "."]);
    assert!(
        refused.stderr.contains("already exists"),
        "{}",
        refused.stderr
    );
    assert_eq!(fs::read(&existing).unwrap(), b"mine");
    program
        .get(&server.url(), &["-output", ".", "-force"])
        .expect_success();
    assert_eq!(fs::read(&existing).unwrap(), program.debug);
}

#[test]
fn reports_unusable_arguments_and_downloads_others() {
    let program = need_program!();
    let server = server_of(&program);
    let url = server.url();
    let path = program.path.to_str().unwrap();
    let run = |words: &[&str]| {
        let arguments = [&["symbols"], words, &["-server", &url, "-quiet"]].concat();
        let finished = run(&mut program.command(arguments), LIMIT);
        assert_eq!(finished.status.code(), Some(1), "{words:?}");
        finished.stderr
    };
    fs::write(program.directory.path().join("mine"), "mine").unwrap();
    let output = run(&[path, "-output", "mine"]);
    assert!(
        output.contains("mine is not a directory: give one"),
        "{output}"
    );
    let odd = &program.build_id[1..];
    let output = run(&[odd]);
    assert!(output.contains("neither a file nor a build id"), "{output}");
    assert_eq!(server.take_requests(), []);

    let output = run(&["gone", path, "mine"]);
    assert!(
        output.contains("cannot open gone: No such file"),
        "{output}"
    );
    assert!(output.contains("mine: neither a trace nor"), "{output}");
    let end = "perfcollect: 2 of the files cannot be read\n";
    assert!(output.ends_with(end), "{output}");
    assert_eq!(fs::read(program.cached()).unwrap(), program.debug);
}

#[test]
fn skips_existing_debug_files_and_duplicate_arguments() {
    let program = need_program!();
    let server = server_of(&program);
    let url = server.url();
    let path = program.path.to_str().unwrap();
    let get = |words: &[&str]| {
        let arguments = [&["symbols", "-server", &url], words].concat();
        let finished = run(&mut program.command(arguments), LIMIT).expect_success();
        (finished.stderr, server.take_requests().len())
    };
    let whole = program.directory.path().join("whole");
    fs::copy(workloads::native("native-nofp").unwrap(), &whole).unwrap();
    let (output, requests) = get(&["whole"]);
    assert!(output.contains("whole: has all symbols, nothing to download") && requests == 0);

    let beside = program.path.with_file_name("native-app.dbg");
    fs::write(&beside, &program.debug).unwrap();
    let (output, requests) = get(&["app/native-app", "-output", "out"]);
    let found = format!("already in {}", beside.display());
    assert!(output.contains(&found) && requests == 0, "{output}");
    let copied = program.directory.path().join("out/native-app.dbg");
    assert_eq!(fs::read(copied).unwrap(), program.debug);
    fs::remove_file(&beside).unwrap();

    let (output, requests) = get(&[path, path, &program.build_id]);
    let same = format!("{0}: same build as native-app ({0})", program.build_id);
    assert!(output.contains("native-app: given twice"), "{output}");
    assert!(output.contains(&same) && requests == 1, "{output}");
}

#[test]
fn directory_at_cache_path_fails_only_one_file() {
    let program = need_program!();
    let server = server_of(&program);
    fs::create_dir_all(program.cached()).unwrap();
    let other = program.directory.path().join("app/libwork.so");
    let strip = ["--strip-all".as_ref(), other.as_os_str()];
    run(Command::new("objcopy").args(strip), LIMIT).expect_success();
    let (path, url) = (program.path.to_str().unwrap(), server.url());
    let arguments = ["symbols", path, other.to_str().unwrap(), "-server", &url];
    let output = run(&mut program.command(arguments), LIMIT);
    assert_eq!(output.status.code(), Some(1));
    let in_the_way = format!(
        "cannot write {}: Is a directory",
        program.cached().display()
    );
    assert!(output.stderr.contains(&in_the_way), "{}", output.stderr);
    let missing = "no debug file for 2 of 2 modules";
    assert!(output.stderr.contains(missing), "{}", output.stderr);
}

#[test]
fn accepts_unstripped_image_and_build_id_argument() {
    let program = need_program!();
    let key = format!("elf-buildid-{}", program.build_id);
    let server = Server::of_files(vec![(
        format!("/native-app/{key}/native-app"),
        program.debug.clone(),
    )]);
    program.get(&server.url(), &[]).expect_success();
    let targets = server
        .take_requests()
        .into_iter()
        .map(|request| request.target);
    assert_eq!(
        targets.collect::<Vec<_>>(),
        [program.key(), format!("/native-app/{key}/native-app")]
    );

    let server = server_of(&program);
    let by_id = [
        "symbols",
        &program.build_id.to_uppercase(),
        "-server",
        &server.url(),
    ];
    run(&mut program.command(by_id), LIMIT).expect_success();
    assert!(program.cached().exists());
}

/// A process without privileges reads the network.
#[test]
fn root_sends_requests_as_nobody_or_invoking_user() {
    if !rustix::process::geteuid().is_root() {
        skip!(Missing::Root);
    }
    let program = need_program!();
    let server = server_of(&program);
    program.get(&server.url(), &[]).expect_success();
    let uids = |server: &Server| -> Vec<u32> {
        let requests = server.take_requests().into_iter();
        requests.map(|request| request.uid).collect()
    };
    assert_eq!(uids(&server), [NOBODY]);
    fs::remove_file(program.cached()).unwrap();
    let id = &program.build_id;
    let mut command = program.command(["symbols", id, "-server", &server.url()]);
    run(
        command.env("SUDO_UID", "4321").env("SUDO_GID", "4321"),
        LIMIT,
    )
    .expect_success();
    assert_eq!(uids(&server), [4321]);

    // Another user could place links where root writes.
    let foreign = program.directory.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    std::os::unix::fs::chown(&foreign, Some(4321), None).unwrap();
    let mut command = program.command(["symbols", id, "-server", &server.url()]);
    let refused = run(command.env("XDG_CACHE_HOME", &foreign), LIMIT);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr.contains("belongs to another user"),
        "{}",
        refused.stderr
    );
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 0);
}

#[test]
fn uses_proxy_except_for_no_proxy_hosts() {
    let program = need_program!();
    let server = server_of(&program);
    // No resolver knows this host: the request must go to the proxy.
    let url = "http://symbols.invalid:8080";
    let id = &program.build_id;
    let mut command = program.command(["symbols", id, "-server", url]);
    run(command.env("http_proxy", server.url()), LIMIT).expect_success();
    let requests: Vec<_> = server.take_requests();
    assert_eq!(
        (&*requests[0].method, &*requests[0].target),
        ("CONNECT", "symbols.invalid:8080")
    );
    assert_eq!(
        (&*requests[1].method, &requests[1].target),
        ("GET", &program.key())
    );

    fs::remove_file(program.cached()).unwrap();
    let mut command = program.command(["symbols", id, "-server", &server.url()]);
    command
        .env("http_proxy", "http://127.0.0.1:1")
        .env("no_proxy", "localhost,127.0.0.1");
    run(&mut command, LIMIT).expect_success();
    assert_eq!(server.take_requests().len(), 1);
}

/// A download resumes after a closed connection, in the same run and in the next one.
#[test]
fn resumes_incomplete_download() {
    let program = need_program!();
    let (debug, half) = (program.debug.clone(), program.debug.len() / 2);
    let server = Server::start(move |request, stream| match request.from {
        None => send(stream, debug.len(), &debug[..half]),
        Some(_) => send_from(request, &debug, stream),
    });
    program.get(&server.url(), &[]).expect_success();
    let from: Vec<_> = server
        .take_requests()
        .iter()
        .map(|request| request.from)
        .collect();
    assert_eq!(from, [None, Some(half)]);
    assert_eq!(fs::read(program.cached()).unwrap(), program.debug);

    fs::remove_file(program.cached()).unwrap();
    let debug = program.debug.clone();
    let count = AtomicUsize::new(0);
    let server =
        Server::start(
            move |request, stream| match count.fetch_add(1, Ordering::Relaxed) {
                0 => send(stream, debug.len(), &debug[..half]),
                1 => {}
                2 => status(stream, "503 Busy", ""),
                _ => send_from(request, &debug, stream),
            },
        );
    // A build id argument has only one URL.
    let url = server.url();
    let get = || {
        run(
            &mut program.command(["symbols", &program.build_id, "-server", &url]),
            LIMIT,
        )
    };
    for _ in 0..2 {
        assert!(!get().status.success());
        assert_eq!(program.files_in_cache().len(), 1);
    }
    get().expect_success();
    let requests = server.take_requests();
    let from: Vec<_> = requests.iter().map(|request| request.from).collect();
    assert_eq!(from, [None, Some(half), Some(half), Some(half)]);
    assert_eq!(program.files_in_cache(), [program.cached()]);
}

#[test]
fn rejects_arguments_that_are_not_elf_files_or_traces() {
    let program = need_program!();
    let text = program.directory.path().join("text");
    fs::write(&text, "no ELF").unwrap();
    let output = |argument: &str| run(&mut program.command(["symbols", argument]), LIMIT).stderr;
    assert!(output("text").contains("neither a trace nor an ELF file"));
    fs::write(program.directory.path().join("late.nettrace"), "Nettrace").unwrap();
    let nettrace = output("late.nettrace");
    assert!(
        nettrace.contains("pass late.trace.zip; the .nettrace beside it is updated, too"),
        "{nettrace}"
    );
    assert!(output("absent").contains("cannot open absent"));
    assert!(output(".").contains("not a regular file"));
    let worker = run(&mut program.command(["symbols-worker"]), LIMIT);
    assert_eq!(worker.status.code(), Some(1));
}
