//! Captures with the capabilities of docs/containers.md instead of all rights of root: as another
//! user, and from a container beside that of the target.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use perfcollect::trace::NoticeKind;
use support::{
    Missing, PublicDirectory, Runtime, Saved, Workload, cache, end_capture, file_names,
    perfcollect, run, runtimes, wait_for_cpu_time, workloads,
};

/// The first .NET whose methods are read from memory.
const MIN_VERSION: u32 = 8;
/// CPU time of a target that is some 3 000 samples.
const CPU_TIME: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(120);
/// Held while a test captures: small ring buffers lose samples on a busy machine.
static CAPTURES: Mutex<()> = Mutex::new(());

/// Words that run a command as another user with these capabilities only, such as `+perfmon`.
fn as_nobody_with(capabilities: &str) -> [String; 7] {
    [
        "setpriv".to_owned(),
        "--reuid=65534".to_owned(),
        "--regid=65534".to_owned(),
        "--clear-groups".to_owned(),
        format!("--inh-caps=-all,{capabilities}"),
        format!("--ambient-caps=-all,{capabilities}"),
        format!("--bounding-set=-all,{capabilities}"),
    ]
}

/// A command of root that sees the cache at a path which all users may read, unlike root's home.
fn with_public_cache(at: &Path, command: &Command) -> Command {
    let from = cache();
    fs::create_dir_all(at).unwrap();
    let mut public = Command::new("unshare");
    let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    public
        .args(["--mount", "sh", "-c", script, "sh"])
        .args([&from, at]);
    for word in std::iter::once(command.get_program()).chain(command.get_args()) {
        let moved = Path::new(word)
            .strip_prefix(&from)
            .map(|inside| at.join(inside));
        public.arg(moved.unwrap_or_else(|_| word.into()));
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => public.env(name, value),
            None => public.env_remove(name),
        };
    }
    public
}

/// The runtimes in the cache whose methods are read from memory.
fn readable_runtimes() -> impl Iterator<Item = Runtime> {
    let all = runtimes().into_iter();
    all.filter(|runtime| runtime.major() >= MIN_VERSION && runtime.dotnet.starts_with(cache()))
}

/// The share of samples with a frame, by its name.
fn shares(saved: &Saved) -> BTreeMap<&str, f64> {
    let mut shares = BTreeMap::new();
    for (stack, count) in &saved.stacks {
        let mut names: Vec<&str> = stack.iter().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            *shares.entry(name).or_default() += *count as f64 / saved.summary.samples as f64;
        }
    }
    shares
}

/// Both captures observed the same at the same time, with the same names.
#[track_caller]
fn expect_same_names(saved: &Saved, of_root: &Saved) {
    let shares_of_root = shares(of_root);
    let shares = shares(saved);
    for (name, share) in shares_of_root
        .into_iter()
        .filter(|(_, share)| *share > 0.05)
    {
        let found = shares.get(name).copied().unwrap_or(0.0);
        assert!(found > share / 4.0, "{name}: {found} instead of {share}");
    }
}

/// Hardly anything is lost, and all code that names itself has names.
///
/// Small ring buffers hold short copies of stacks. Frame pointers find the callers above them.
#[track_caller]
fn expect_all_names(saved: &Saved) {
    let quality = &saved.summary.quality;
    let names = &quality.names;
    assert!(
        names.jit.named > 0 && names.ready_to_run.named > 0,
        "{names:?}"
    );
    assert_eq!(
        names.jit.unresolved + names.ready_to_run.unresolved,
        0,
        "{names:?}"
    );
    assert_eq!(names.kernel.unresolved, 0, "{names:?}");
    let losses = &quality.losses;
    assert!(losses.lost() * 20 < losses.samples_seen, "{quality:#?}");
    assert!(
        quality.stacks.guessed * 10 < saved.summary.samples,
        "{quality:#?}"
    );
}

#[test]
fn another_user_with_capabilities_gets_the_names_that_root_gets() {
    need_capture!();
    need_command!("setpriv");
    let mixed = need!(workloads::mixed());
    let _alone = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut tried = 0;
    for runtime in readable_runtimes() {
        let directory = PublicDirectory::new();
        let mut program = runtime.command(&mixed);
        program.args(["--seconds", "6000"]);
        let mut program = with_public_cache(&directory.path().join("cache"), &program);
        let target = Workload::start(&mut program);
        let nobody = as_nobody_with("+perfmon,+sys_ptrace,+syslog");
        let nobody: Vec<&str> = nobody.iter().map(String::as_str).collect();
        let root = PublicDirectory::new();
        let capture_of_root = root.start(&[], &[], target.pid());
        let capture = directory.start(&nobody, &[], target.pid());
        wait_for_cpu_time(target.pid(), CPU_TIME);
        end_capture(capture);
        let of_root = root.end(capture_of_root);
        let saved = Saved::open(directory.into_inner(), "x");
        expect_all_names(&saved);
        expect_same_names(&saved, &of_root);
        // Its socket is only for its user, which the notice says.
        let notices = saved.notices(NoticeKind::EventsMissing);
        let [notice] = notices[..] else {
            panic!("{notices:#?}");
        };
        assert!(
            notice.what.contains("as the user of the process"),
            "{notice:#?}"
        );
        tried += 1;
    }
    if tried == 0 {
        skip!(Missing::Dotnet(MIN_VERSION));
    }
}

/// A container of podman with runc. Its root file system is a directory.
struct Container {
    name: String,
    settings: PathBuf,
}

impl Container {
    /// A command of podman. The default limits are more than a user without `CAP_SYS_RESOURCE` has.
    fn podman(settings: &Path) -> Command {
        let mut podman = Command::new("podman");
        podman
            .args(["--runtime", "runc"])
            .env("CONTAINERS_CONF", settings);
        podman
    }

    /// Starts `program` with directories of the host, all for reading only.
    fn start(scratch: &Path, program: &Command, mounts: &[(&Path, &str)]) -> Self {
        let settings = scratch.join("containers.conf");
        let limits = "[containers]\ndefault_ulimits=[\"nofile=4096:4096\",\"nproc=4096:4096\"]\n";
        fs::write(&settings, limits).unwrap();
        let root = scratch.join("target");
        make_root(&root);
        let name = format!("perfcollect-test-{}", std::process::id());
        let mut podman = Self::podman(&settings);
        podman.args(["run", "--detach", "--name", &name, "--network=none"]);
        for (from, to) in mounts {
            podman.arg(format!("--volume={}:{to}:ro", from.display()));
        }
        podman
            .arg("--env=DOTNET_ROLL_FORWARD=LatestMajor")
            .arg("--rootfs")
            .arg(root);
        podman.arg(program.get_program()).args(program.get_args());
        let container = Self { name, settings };
        run(&mut podman, LIMIT).expect_success();
        container
    }

    /// Returns the pid on the host.
    fn pid(&self) -> u32 {
        let format = ["inspect", "--format={{.State.Pid}}", &self.name];
        let printed = run(Self::podman(&self.settings).args(format), LIMIT).expect_success();
        printed.stdout.trim().parse().unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = Self::podman(&self.settings)
            .args(["rm", "--force", &self.name])
            .output();
    }
}

/// Makes the directories of a root file system.
fn make_root(root: &Path) {
    for name in ["proc", "sys", "dev", "etc", "run", "tmp", "out"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
}

#[test]
fn container_beside_that_of_the_target_gets_all_names() {
    need_capture!();
    for command in ["podman", "runc"] {
        need_command!(command);
    }
    let mixed = need!(workloads::mixed());
    let _alone = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = need!(
        readable_runtimes()
            .last()
            .ok_or(Missing::Dotnet(MIN_VERSION))
    );
    let scratch = PublicDirectory::new();
    let mut program = Command::new("/dotnet/dotnet");
    program.args(["/managed/mixed.dll", "--seconds", "6000"]);
    let system = ["/bin", "/lib", "/lib64", "/usr"].map(|path| (Path::new(path), path));
    let own = [
        (runtime.root(), "/dotnet"),
        (mixed.parent().unwrap(), "/managed"),
    ];
    let mounts = [&system[..], &own].concat();
    let target = Container::start(scratch.path(), &program, &mounts);
    wait_for_cpu_time(target.pid(), Duration::from_secs(1));
    let sidecar = scratch.path().join("sidecar");
    make_root(&sidecar);
    fs::copy(perfcollect(), sidecar.join("perfcollect")).unwrap();
    let capture = |user: &str| {
        let out = PublicDirectory::new();
        let mut podman = Container::podman(&target.settings);
        podman.args([
            "run",
            "--rm",
            "--network=none",
            "--security-opt=seccomp=unconfined",
        ]);
        podman.args([
            "--cap-add=PERFMON",
            "--cap-add=SYS_PTRACE",
            "--cap-add=SYSLOG",
        ]);
        podman
            .arg(format!("--pid=container:{}", target.name))
            .arg(format!("--user={user}"));
        podman
            .arg(format!("--volume={}:/out", out.path().display()))
            .arg("--workdir=/out");
        podman.arg("--rootfs").arg(&sidecar);
        podman.args([
            "/perfcollect",
            "collect",
            "x",
            "-pid",
            "1",
            "-collectsec",
            "5",
        ]);
        let report = run(&mut podman, LIMIT).expect_success().stdout;
        assert!(
            file_names(out.path()).contains(&"x.trace.zip".to_owned()),
            "{report}"
        );
        let saved = Saved::open(out.into_inner(), "x");
        expect_all_names(&saved);
        // A sample of a process that ends has no process; those of other containers are no losses.
        let unattributed = saved.summary.quality.losses.unattributed;
        assert!(unattributed * 100 < saved.summary.samples, "{report}");
        saved
    };
    let (as_root, as_nobody) = std::thread::scope(|scope| {
        let as_nobody = scope.spawn(|| capture("65534:65534"));
        (capture("0"), as_nobody.join().unwrap())
    });
    assert!(as_root.notices(NoticeKind::EventsMissing).is_empty());
    expect_same_names(&as_nobody, &as_root);
}
