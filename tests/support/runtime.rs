//! The real .NET runtimes that are there.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Missing, cache};

/// A .NET runtime. Each has one version only, so a program started with it runs on that version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// Such as `8.0.4`.
    pub version: String,
    /// Its `dotnet`.
    pub dotnet: PathBuf,
    /// Whether ASP.NET Core is there too.
    pub aspnet: bool,
}

impl Runtime {
    /// The newest that is there, or what a test that needs one reports.
    pub fn newest() -> Result<Self, Missing> {
        Self::at_least(0)
    }

    /// The newest that is there, if it has this major version or a later one.
    pub fn at_least(major: u32) -> Result<Self, Missing> {
        let newest = runtimes().pop();
        newest
            .filter(|runtime| runtime.major() >= major)
            .ok_or(Missing::Dotnet(major))
    }

    /// The oldest that is there.
    pub fn oldest() -> Result<Self, Missing> {
        runtimes().into_iter().next().ok_or(Missing::Dotnet(0))
    }

    /// The one for musl, the C library of Alpine, or what a test that needs it reports.
    pub fn musl() -> Result<Self, Missing> {
        let path = "musl-dotnet-10/dotnet";
        Self::of(&cache().join(path)).ok_or_else(|| Missing::Cached(path.into()))
    }

    /// The highest version in the installation that this `dotnet` belongs to.
    fn of(dotnet: &Path) -> Option<Self> {
        let root = dotnet.canonicalize().ok()?.parent()?.to_owned();
        let numbers = |version: &str| {
            version
                .split('.')
                .map(|part| part.parse::<u32>().unwrap_or(0))
                .collect::<Vec<_>>()
        };
        let version = std::fs::read_dir(root.join("shared/Microsoft.NETCore.App"))
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .max_by_key(|version| numbers(version))?;
        let aspnet = root
            .join("shared/Microsoft.AspNetCore.App")
            .join(&version)
            .is_dir();
        Some(Self {
            version,
            dotnet: dotnet.to_owned(),
            aspnet,
        })
    }

    /// The directory of its `dotnet`, for `DOTNET_ROOT`.
    pub fn root(&self) -> &Path {
        self.dotnet.parent().expect("it is a file")
    }

    /// One of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        let dotnet = self.dotnet.canonicalize().expect("it is there");
        dotnet
            .with_file_name("shared/Microsoft.NETCore.App")
            .join(&self.version)
            .join(name)
    }

    /// The 8 of 8.0.4.
    pub fn major(&self) -> u32 {
        self.version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok())
            .unwrap_or(0)
    }

    /// `dotnet PROGRAM.dll`, whatever the settings of this shell.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.dotnet);
        command
            .arg(program)
            .env("DOTNET_ROLL_FORWARD", "LatestMajor");
        for name in [
            "DOTNET_ROOT",
            "DOTNET_STARTUP_HOOKS",
            "DOTNET_PerfMapEnabled",
            "COMPlus_PerfMapEnabled",
        ] {
            command.env_remove(name);
        }
        command
    }
}

/// The runtimes that are there, oldest first: those in the cache, and the `dotnet` on PATH (its newest).
pub fn runtimes() -> Vec<Runtime> {
    let cached = [
        "dotnet-3.1",
        "dotnet-8",
        "dotnet-8-aspnet",
        "dotnet-9",
        "dotnet-10",
    ];
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&on_path)
        .map(|directory| directory.join("dotnet"))
        .find(|dotnet| dotnet.is_file());
    let mut runtimes: Vec<_> = cached
        .iter()
        .map(|name| cache().join(name).join("dotnet"))
        .chain(on_path)
        .filter_map(|dotnet| Runtime::of(&dotnet))
        .collect();
    runtimes.sort_by_key(Runtime::major);
    runtimes
}
