//! How many cores this process may use, and of which kind, as Linux tells; elsewhere every thread counts as a core.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Counts of what threads may run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores {
    /// hardware threads
    pub threads: usize,
    /// cores: threads that share one count once
    pub cores: usize,
    /// cores that are about as fast as the fastest
    pub fast: usize,
}

/// A core at less than this part of the fastest one's speed is a slow one: favoured cores differ by a few percent, cores of
/// another kind by a quarter and more.
const SLOW: f64 = 0.85;

impl Cores {
    /// Of this process, by what it may run on.
    pub fn find() -> Cores {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
        Cores::below(Path::new("/sys/devices/system/cpu"), allowed.unwrap_or_default(), threads)
    }

    /// Of the processors `allowed` (`0-3,8`) as a directory of the system describes them; no more than `threads`.
    fn below(system: &Path, allowed: &str, threads: usize) -> Cores {
        // threads of one core have the same list of siblings
        let mut speeds: BTreeMap<String, f64> = BTreeMap::new();
        for cpu in numbers(allowed) {
            let dir = system.join(format!("cpu{cpu}"));
            let text = |name: &str| std::fs::read_to_string(dir.join(name)).ok().map(|t| t.trim().to_string());
            let core = text("topology/thread_siblings_list").unwrap_or_else(|| cpu.to_string());
            let number = |name| text(name).and_then(|t| t.parse::<f64>().ok()).filter(|n| *n > 0.0);
            let speed = number("cpu_capacity").or_else(|| number("cpufreq/cpuinfo_max_freq")).unwrap_or(1.0);
            speeds.insert(core, speed);
        }
        if speeds.is_empty() {
            return Cores { threads, cores: threads, fast: threads };
        }
        let fastest = speeds.values().copied().fold(0.0, f64::max);
        let fast = speeds.values().filter(|s| **s >= SLOW * fastest).count();
        Cores { threads, cores: speeds.len().min(threads), fast: fast.min(threads) }
    }

    /// Numbers of threads worth trying, the least first: one for each fast core, for each core, for each thread.
    pub fn choices(self) -> Vec<usize> {
        BTreeSet::from([self.fast, self.cores, self.threads]).into_iter().filter(|n| *n > 0).collect()
    }
}

/// The numbers of `0-3,8`; what is no number, or a range of more processors than any machine has, is left out.
fn numbers(list: &str) -> Vec<usize> {
    const MOST: usize = 8192;
    let mut all = Vec::new();
    for part in list.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.trim().parse::<usize>(), to.trim().parse::<usize>())
            && to < MOST
        {
            all.extend(from..=to);
        }
    }
    all
}

/// Lines by which /proc/cpuinfo tells kinds of cores apart on architectures whose programs are told nothing, each once.
pub fn kinds() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = |l: &&str| ["CPU implementer", "CPU part", "CPU variant", "Hardware"].iter().any(|n| l.starts_with(n));
    let lines: BTreeSet<&str> = text.lines().filter(named).collect();
    lines.into_iter().map(|l| l.replace('\t', "")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory as Linux's: for each processor its siblings and what is said of its speed.
    fn system(cpus: &[(&str, Option<(&str, &str)>)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (i, (siblings, speed)) in cpus.iter().enumerate() {
            let cpu = dir.path().join(format!("cpu{i}"));
            std::fs::create_dir_all(cpu.join("topology")).unwrap();
            std::fs::create_dir_all(cpu.join("cpufreq")).unwrap();
            std::fs::write(cpu.join("topology/thread_siblings_list"), format!("{siblings}\n")).unwrap();
            if let Some((name, value)) = speed {
                std::fs::write(cpu.join(name), value).unwrap();
            }
        }
        dir
    }

    fn found(cpus: &[(&str, Option<(&str, &str)>)], allowed: &str, threads: usize) -> (usize, usize, Vec<usize>) {
        let c = Cores::below(system(cpus).path(), allowed, threads);
        assert_eq!(c.threads, threads);
        (c.cores, c.fast, c.choices())
    }

    #[test]
    fn siblings_and_slow_cores_are_told_apart() {
        let fast = Some(("cpufreq/cpuinfo_max_freq", "5800000\n"));
        let favoured = Some(("cpufreq/cpuinfo_max_freq", "6000000\n"));
        let slow = Some(("cpufreq/cpuinfo_max_freq", "4400000"));
        let laptop = [("0-1", favoured), ("0-1", favoured), ("2-3", fast), ("2-3", fast), ("4", slow), ("5", slow)];
        assert_eq!(found(&laptop, "0-5", 6), (4, 2, vec![2, 4, 6]));
        // a process bound to some of them
        assert_eq!(found(&laptop, "0,2,4-5", 4), (4, 2, vec![2, 4]));
        assert_eq!(found(&laptop, "4-5", 2), (2, 2, vec![2]));
        // a container with a quota
        assert_eq!(found(&laptop, "0-5", 1), (1, 1, vec![1]));
        let arm = [("0", Some(("cpu_capacity", "381"))), ("1", Some(("cpu_capacity", "1024")))];
        assert_eq!(found(&arm, "0-1", 2), (2, 1, vec![1, 2]));
        assert_eq!(found(&[("0", None), ("1", None)], "0-1", 2), (2, 2, vec![2]));
    }

    #[test]
    fn what_the_system_does_not_tell_or_tells_wrongly_is_a_core_a_thread() {
        assert_eq!(found(&[], "", 4), (4, 4, vec![4]));
        assert_eq!(found(&[], "x-y,-", 4), (4, 4, vec![4]));
        assert_eq!(found(&[], "0-99999999999", 4), (4, 4, vec![4]));
        assert_eq!(found(&[("0", Some(("cpu_capacity", "none")))], "0", 1), (1, 1, vec![1]));
        let here = Cores::find();
        assert!(here.fast >= 1 && here.fast <= here.cores && here.cores <= here.threads, "{here:?}");
    }
}
