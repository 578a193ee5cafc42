//! The `isobit` program: arguments in, exit code out.

fn main() -> std::process::ExitCode {
    isobit::cli::main(std::env::args_os())
}
