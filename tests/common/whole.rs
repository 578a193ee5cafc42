//! What a test takes of a long list: some of it in the gate, all of it where `ISOBIT_TESTS_WHOLE=1` asks, as `.ci/cross`
//! does. Nearly all the time of such tests is Mesa compiling pipelines.

/// `some`, or `all` where all is asked for.
pub fn taking<T>(some: T, all: T) -> T {
    if std::env::var("ISOBIT_TESTS_WHOLE").is_ok_and(|v| v == "1") { all } else { some }
}
