//! CPU time and peak memory of a process, as the kernel reports them.

use std::path::PathBuf;

#[derive(Clone, Debug)]
pub(crate) struct Process(PathBuf);

impl Process {
    pub(crate) fn this() -> Self {
        Self("/proc/self".into())
    }

    pub(crate) fn child(pid: u32) -> Self {
        Self(format!("/proc/{pid}").into())
    }

    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(self.0.join("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks: f64 = [11, 12]
            .iter()
            .map(|&i| fields[i].parse::<f64>().unwrap())
            .sum();
        ticks / 100.0
    }

    /// CPU seconds of a process and its children, ended ones too.
    #[cfg(feature = "postgres")]
    pub(crate) fn family_seconds(pid: u32) -> f64 {
        let mut ticks = 0.0;
        for entry in std::fs::read_dir("/proc").unwrap() {
            // Some end meanwhile.
            let Ok(stat) = std::fs::read_to_string(entry.unwrap().path().join("stat")) else {
                continue;
            };
            let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
            let times = |of: std::ops::RangeInclusive<usize>| -> f64 {
                fields[of].iter().map(|t| t.parse::<f64>().unwrap()).sum()
            };
            if stat.starts_with(&format!("{pid} ")) {
                ticks += times(11..=14);
            } else if fields[1] == pid.to_string() {
                ticks += times(11..=12);
            }
        }
        ticks / 100.0
    }

    pub(crate) fn peak_mib(&self) -> f64 {
        let status = std::fs::read_to_string(self.0.join("status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }
}
