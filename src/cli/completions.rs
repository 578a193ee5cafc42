//! `isobit completions`: what a shell needs to complete commands and options. `isobit man`: the same as manual pages.
//!
//! Both are made from the definitions of the commands, so they cannot say anything else than `--help`.

use crate::formats::output::replace_file;
use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  isobit completions bash > ~/.local/share/bash-completion/completions/isobit\n  isobit completions zsh > ~/.zfunc/_isobit\n  isobit completions fish > ~/.config/fish/completions/isobit.fish"
)]
pub struct CompletionsArgs {
    /// bash, elvish, fish, powershell, zsh
    #[arg(value_enum, hide_possible_values = true)]
    shell: Shell,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  isobit man --out ~/.local/share/man/man1")]
pub struct ManArgs {
    /// The directory the pages are written to, one for each command; made where it is not there
    #[arg(short = 'o', long, value_name = "DIR")]
    out: PathBuf,
}

pub fn run(a: CompletionsArgs, mut program: Command) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    // into memory first: the generator panics where stdout is closed
    clap_complete::generate(a.shell, &mut program, "isobit", &mut text);
    std::io::stdout().lock().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn man(a: ManArgs, mut program: Command) -> anyhow::Result<ExitCode> {
    program.build();
    std::fs::create_dir_all(&a.out).with_context(|| a.out.display().to_string())?;
    let shown = |c: &&Command| !c.is_hide_set() && c.get_name() != "help";
    let mut written = String::new();
    let commands: Vec<Command> = program.get_subcommands().filter(shown).cloned().collect();
    for command in std::iter::once(program).chain(commands) {
        let (name, page) = page(command)?;
        let file = a.out.join(name);
        replace_file(&file, &page)?;
        written += &format!("{}\n", super::one_line(&file.to_string_lossy()));
    }
    // all pages are written by now, so a closed stdout does not matter
    std::io::stdout().lock().write_all(written.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The file name and text of a command's page. What `--help` ends with is set line by line: examples are not to be
/// filled into a paragraph.
fn page(command: Command) -> anyhow::Result<(String, Vec<u8>)> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let parts = command.get_subcommands().next().is_some();
    let page = Man::new(command).source(concat!("isobit ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if parts {
        page.render_subcommands_section(&mut text)?;
    }
    let mut end = Roff::new();
    end.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in after.lines().filter(|l| *l != "Examples:") {
        end.text([roman(line)]);
    }
    end.control("fi", []);
    end.to_writer(&mut text)?;
    Ok((page.get_filename(), text))
}
