//! Downloads from real servers: debuginfod and `openssl s_server`.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Program, build_id};
use crate::support::{self, Finished, Missing, run, skip, start};
use crate::{LIMIT, server_of};

/// `openssl s_server` with a self-signed certificate. Its files contain complete responses.
struct Tls {
    directory: tempfile::TempDir,
    port: u16,
    _running: support::Running,
}

impl Tls {
    fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        // The worker process runs as `nobody` and reads the certificate.
        fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
        let openssl = |arguments: &[&str]| {
            let mut command = Command::new("openssl");
            command.args(arguments).current_dir(&directory);
            command
        };
        let certificate = "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost \
            -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
        let created = openssl(&certificate.split_whitespace().collect::<Vec<_>>())
            .output()
            .ok()?;
        assert!(
            created.status.success(),
            "{}",
            String::from_utf8_lossy(&created.stderr)
        );
        let port = free_port();
        let serve = "s_server -cert cert.pem -key key.pem -HTTP -accept";
        let arguments: Vec<_> = serve.split(' ').collect();
        let running = start(&mut openssl(
            &[&arguments[..], &[&port.to_string()]].concat(),
        ));
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < LIMIT);
            thread::sleep(Duration::from_millis(20));
        }
        Some(Self {
            directory,
            port,
            _running: running,
        })
    }

    /// Sets the response for a program's debug file.
    fn set_response(&self, program: &Program, head: &str, body: &[u8]) {
        let path = self.directory.path().join(&program.key()[1..]);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
        fs::write(path, [head.as_bytes(), body].concat()).unwrap();
    }

    /// Runs `perfcollect symbols`, which trusts these certificates.
    fn get(&self, program: &Program, certificates: &str) -> Finished {
        let url = format!("https://127.0.0.1:{}", self.port);
        let mut command = program.command(["symbols", &program.build_id, "-server", &url]);
        let certificates = self.directory.path().join(certificates);
        run(
            command
                .env("SSL_CERT_FILE", certificates)
                .env_remove("SSL_CERT_DIR"),
            LIMIT,
        )
    }
}

#[test]
fn verifies_certificate_and_rejects_redirect_to_http() {
    let Some(tls) = Tls::start() else {
        skip!(Missing::Command("openssl"));
    };
    let program = need_program!();
    tls.set_response(&program, "200 OK", &program.debug);
    let refused = tls.get(&program, "none.pem");
    assert!(refused.stderr.contains("certificate"), "{}", refused.stderr);
    tls.get(&program, "cert.pem").expect_success();
    assert_eq!(fs::read(program.cached()).unwrap(), program.debug);

    fs::remove_file(program.cached()).unwrap();
    let plain = server_of(&program);
    let location = format!("302 Found\r\nLocation: {}{}", plain.url(), program.key());
    tls.set_response(&program, &location, b"");
    let refused = tls.get(&program, "cert.pem");
    assert!(
        refused.stderr.contains("redirected from https to http"),
        "{}",
        refused.stderr
    );
    assert_eq!(plain.take_requests(), []);
}

/// Returns a free port below those that the kernel chooses for the servers of other tests.
fn free_port() -> u16 {
    let first = 20_000 + (std::process::id() % 8_000) as u16;
    let mut ports = first..32_000;
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.unwrap()
}

/// Runs `debuginfod` over the debug files of the C library and of the program.
#[test]
fn downloads_distribution_files_from_debuginfod() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    if Command::new("debuginfod")
        .arg("--version")
        .output()
        .is_err()
    {
        skip!(Missing::Command("debuginfod"));
    }
    let program = need_program!();
    let files = program.directory.path().join("served");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("native.debug"), &program.debug).unwrap();
    let mut wanted = vec![(program.build_id.clone(), program.debug.clone())];
    let id = build_id(libc);
    let debug = format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    match fs::read(&debug) {
        Ok(debug) => wanted.push((id, debug)),
        Err(_) => skip(Missing::File(debug.clone())),
    }
    let port = free_port();
    let mut command = Command::new("debuginfod");
    command
        .args(["-F", "-d", ":memory:", "-p", &port.to_string()])
        .arg(&files);
    if wanted.len() > 1 {
        command.arg(Path::new(&debug).parent().unwrap());
    }
    let _server = start(&mut command);
    let url = format!("http://127.0.0.1:{port}");
    for (id, debug) in wanted {
        let start = Instant::now();
        loop {
            let mut command = program.command(["symbols", &id]);
            // A symbol path without servers, so that Microsoft's server is not queried.
            command
                .env("_NT_SYMBOL_PATH", "cache*/nonexistent")
                .env("DEBUGINFOD_URLS", &url);
            let output = run(&mut command, LIMIT);
            if output.status.success() {
                break;
            }
            // debuginfod has not indexed the file yet.
            assert!(start.elapsed() < LIMIT, "{}", output.stderr);
            thread::sleep(Duration::from_millis(200));
        }
        let cached = program
            .cache()
            .join("debuginfod_client")
            .join(&id)
            .join("debuginfo");
        assert!(fs::read(cached).unwrap() == debug, "{id}");
    }
}
