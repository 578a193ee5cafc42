//! What a test does where there is no GPU: it fails, and says how to get one or how to do without.
//!
//! A test that needs an adapter is in a module named `gpu`; the nextest profile `no-gpu` leaves those out and counts them
//! as skipped. A test that compares whatever devices there are runs on the CPU's levels alone only where it is told to.

/// Set to 1, tests that compare all devices compare those of the CPU.
const WITHOUT: &str = "ISOBIT_TESTS_WITHOUT_GPU";

/// What to do about it.
fn remedy() -> String {
    format!(
        "install Mesa's software drivers (Debian, Ubuntu: apt-get install libvulkan1 mesa-vulkan-drivers libegl1 \
         libgl1-mesa-dri), or do without: {WITHOUT}=1 cargo nextest run --profile no-gpu"
    )
}

/// Fails the test where nothing was found that it needs.
#[track_caller]
pub fn found(count: usize, what: &str) {
    assert!(count > 0, "there is no {what}: {}", remedy());
}

/// Of a test that compares all devices: fails where no adapter was found, unless the CPU's alone were asked for.
#[track_caller]
pub fn found_or_cpu_only(count: usize) {
    if count == 0 {
        let without = cfg!(not(feature = "gpu")) || std::env::var(WITHOUT).is_ok_and(|v| v == "1");
        assert!(without, "there is no adapter: {}", remedy());
        println!("only devices of the CPU are compared");
    }
}
