//! What the system tells of itself: the CPU's name, memory in use, energy, the time of day. Linux answers all of it;
//! elsewhere, and where a file may not be read, the answer is `None`.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The CPU's name; `unknown` where nobody knows.
pub fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("model name") || l.starts_with("Model"));
    let name = line.and_then(|l| l.split_once(':')).map(|(_, name)| name.trim().to_string());
    name.filter(|n| !n.is_empty()).unwrap_or_else(|| format!("unknown {}", std::env::consts::ARCH))
}

/// The most bytes of main memory this process had resident since it began, or since [`forget_peak`].
pub fn peak_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Counts the peak from now on, where the system can.
pub fn forget_peak() {
    // without the right to do so the peak stays that of the whole process, which is no smaller
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Now, in UTC: `2026-11-21T14:00:00Z`.
pub fn utc() -> String {
    date_and_time(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

/// Seconds since 1970 as date and time of day, in UTC.
fn date_and_time(seconds: u64) -> String {
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| u64::from(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)));
    let mut year = 1970;
    while days >= 365 + leap(year) {
        days -= 365 + leap(year);
        year += 1;
    }
    let lengths = [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, days + 1)
}

/// A counter of energy.
pub struct Energy {
    from: From,
    joules: Cell<f64>,
}

enum From {
    /// packages of Linux's powercap: file, range, last value (microjoules)
    Packages(Vec<(PathBuf, u64, Cell<u64>)>),
    /// a battery's power (microwatts), taken as steady between two looks
    Battery(PathBuf, Cell<Instant>),
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl Energy {
    /// The system's counter: RAPL packages, else a discharging battery. `None` where neither may be read.
    pub fn find() -> Option<Energy> {
        Energy::below(Path::new("/sys/class"))
    }

    fn below(class: &Path) -> Option<Energy> {
        let names = |dir: &str| -> Vec<PathBuf> {
            let list = std::fs::read_dir(class.join(dir)).into_iter().flatten().flatten();
            list.map(|e| e.path()).collect()
        };
        let name = |p: &PathBuf| p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        // intel-rapl:0 is a package (AMD's too); intel-rapl:0:0 is a part of one
        let package = |p: &PathBuf| name(p).starts_with("intel-rapl:") && name(p).matches(':').count() == 1;
        let packages: Vec<_> = names("powercap")
            .into_iter()
            .filter(package)
            .filter_map(|p| {
                let now = number(&p.join("energy_uj"))?;
                let range = number(&p.join("max_energy_range_uj")).unwrap_or(u64::MAX);
                Some((p.join("energy_uj"), range, Cell::new(now)))
            })
            .collect();
        let joules = Cell::new(0.0);
        if !packages.is_empty() {
            return Some(Energy { from: From::Packages(packages), joules });
        }
        let discharging = |p: &PathBuf| {
            std::fs::read_to_string(p.join("status")).is_ok_and(|s| s.trim() == "Discharging")
                && number(&p.join("power_now")).is_some()
        };
        let battery = names("power_supply").into_iter().find(discharging)?;
        Some(Energy { from: From::Battery(battery.join("power_now"), Cell::new(Instant::now())), joules })
    }

    /// What it counts.
    pub fn name(&self) -> &'static str {
        match self.from {
            From::Packages(_) => "CPU packages (powercap)",
            From::Battery(..) => "battery, whole machine",
        }
    }

    /// Whether it counts what a device with memory of its own takes.
    pub fn whole_machine(&self) -> bool {
        matches!(self.from, From::Battery(..))
    }

    /// Joules since the counter was found; `None` when it can no longer be read.
    pub fn joules(&self) -> Option<f64> {
        match &self.from {
            From::Packages(list) => {
                for (file, range, last) in list {
                    let now = number(file)?;
                    let before = last.replace(now);
                    // the counter begins again after its range
                    let used = if now >= before { now - before } else { now + range.saturating_sub(before) };
                    self.joules.set(self.joules.get() + used as f64 / 1e6);
                }
            }
            From::Battery(file, last) => {
                let (power, now) = (number(file)?, Instant::now());
                let seconds = (now - last.replace(now)).as_secs_f64();
                self.joules.set(self.joules.get() + power as f64 / 1e6 * seconds);
            }
        }
        Some(self.joules.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar_around_leap_days_and_ends_of_years() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            // 2100 has no leap day
            (4_107_456_000, "2100-02-28T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date_and_time(seconds), expected);
        }
    }

    #[test]
    fn packages_are_summed_over_the_end_of_their_range_and_parts_are_not_counted() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let file = dir.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        assert!(Energy::below(dir.path()).is_none());
        put("powercap/intel-rapl:0/energy_uj", "9000000\n");
        put("powercap/intel-rapl:0/max_energy_range_uj", "10000000\n");
        put("powercap/intel-rapl:0:0/energy_uj", "5\n");
        let e = Energy::below(dir.path()).unwrap();
        assert_eq!(e.joules(), Some(0.0));
        put("powercap/intel-rapl:0:0/energy_uj", "5000000\n");
        put("powercap/intel-rapl:0/energy_uj", "2000000\n");
        assert_eq!(e.joules(), Some(3.0));
        std::fs::remove_file(dir.path().join("powercap/intel-rapl:0/energy_uj")).unwrap();
        assert_eq!(e.joules(), None);
    }
}
