//! `perfcollect completions SHELL` and `perfcollect man`: what shells and `man` know about the command line.

use std::io;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::arguments::Arguments;
use super::arguments::EXAMPLES_FIRST;

/// Print completions of a shell, for its directory of completions.
#[derive(Args, Debug)]
#[command(help_template = EXAMPLES_FIRST, after_help = "EXAMPLES\n  \
    perfcollect completions bash | sudo tee /etc/bash_completion.d/perfcollect >/dev/null\n  \
    perfcollect completions zsh | sudo tee /usr/local/share/zsh/site-functions/_perfcollect >/dev/null\n  \
    perfcollect completions fish > ~/.config/fish/completions/perfcollect.fish")]
pub(super) struct CompletionsOptions {
    /// Shell: bash, zsh, fish, elvish or powershell
    #[arg(value_enum, value_name = "SHELL", hide_possible_values = true)]
    shell: Shell,
}

/// Print a page for `man`.
#[derive(Args, Debug)]
#[command(help_template = EXAMPLES_FIRST, after_help = "EXAMPLES\n  \
    perfcollect man | man -l -\n  \
    perfcollect man collect | man -l -")]
pub(super) struct ManOptions {
    /// Command of perfcollect; without it, the page is about all of them
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

/// Prints the completions of a shell.
///
/// # Errors
/// Standard output cannot be written to.
pub(super) fn complete(options: &CompletionsOptions) -> io::Result<()> {
    let mut command = Arguments::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, name, &mut script);
    super::print(&script)
}

/// Prints a page for `man`.
///
/// # Errors
/// The command is none, or standard output cannot be written to.
pub(super) fn man(options: &ManOptions) -> io::Result<()> {
    let mut command = Arguments::command();
    command.build();
    if let Some(name) = &options.command {
        let other = || io::Error::other(format!("{name} is no command: see perfcollect --help"));
        command = command.find_subcommand(name).ok_or_else(other)?.clone();
    }
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    super::print(&page)
}
