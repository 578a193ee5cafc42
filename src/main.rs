//! The `isobit` program: arguments in, exit code out.

fn main() -> std::process::ExitCode {
    isobit::internals::cli::main(std::env::args_os())
}
