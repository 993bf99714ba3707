//! Ranks on one machine: how many there are, and which CPUs belong to each.

use std::path::Path;

use headroom_record::reading;

/// A rank's machine and the CPUs that it may use, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlacement {
    machine: String,
    cpus: Vec<usize>,
}

/// This rank's share of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Ranks on the machine.
    pub ranks: usize,
    /// Ranks that may use the same CPUs as this one, itself included.
    pub sharing: usize,
    /// The CPUs assigned to this rank, if there are enough for all ranks that share them.
    pub cpus: Vec<usize>,
}

impl RankPlacement {
    pub fn here(mut cpus: Vec<usize>) -> RankPlacement {
        // Containers on one machine have different host names but the same kernel.
        let read = |path: &str| reading::read_text(Path::new(path), reading::SETTINGS).ok();
        let machine = read("/proc/sys/kernel/random/boot_id").or_else(|| read("/proc/sys/kernel/hostname"));
        cpus.sort_unstable();
        RankPlacement { machine: machine.unwrap_or_default().trim().into(), cpus }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let cpus: Vec<String> = self.cpus.iter().map(usize::to_string).collect();
        format!("{} {}", self.machine, cpus.join(",")).into_bytes()
    }

    pub fn from_bytes(words: &[u8]) -> RankPlacement {
        let text = String::from_utf8_lossy(words);
        let (machine, cpus) = text.rsplit_once(' ').unwrap_or((&text, ""));
        RankPlacement { machine: machine.into(), cpus: cpus.split(',').filter_map(|cpu| cpu.parse().ok()).collect() }
    }
}

/// Ranks with the same CPUs get a part each; ranks whose launcher gave them CPUs of their own keep them.
pub fn share_of(seats: &[RankPlacement], rank: usize) -> Share {
    let own = &seats[rank];
    let ranks = seats.iter().filter(|seat| seat.machine == own.machine).count();
    let with: Vec<usize> = (0..seats.len()).filter(|other| seats[*other] == *own).collect();
    let (sharing, place) = (with.len(), with.iter().position(|other| *other == rank).unwrap_or(0));
    let cpus = own.cpus.len();
    let part = if cpus >= sharing { place * cpus / sharing..(place + 1) * cpus / sharing } else { 0..0 };
    Share { ranks, sharing, cpus: own.cpus[part].to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(all: &[(&str, &[usize])]) -> Vec<RankPlacement> {
        all.iter().map(|(machine, cpus)| RankPlacement { machine: (*machine).into(), cpus: cpus.to_vec() }).collect()
    }

    #[test]
    fn ranks_with_the_same_cpus_get_a_part_each() {
        let all: &[usize] = &[0, 1, 2, 3, 4, 5];
        let four = seats(&[("a", all), ("b", all), ("a", all), ("a", all)]);
        assert_eq!(share_of(&four, 0), Share { ranks: 3, sharing: 3, cpus: vec![0, 1] });
        assert_eq!(share_of(&four, 2).cpus, [2, 3]);
        assert_eq!(share_of(&four, 3).cpus, [4, 5]);
        assert_eq!(share_of(&four, 1), Share { ranks: 1, sharing: 1, cpus: all.to_vec() });
    }

    #[test]
    fn cpus_that_a_launcher_gave_to_one_rank_are_not_divided_again() {
        let two = seats(&[("a", &[0, 1]), ("a", &[2, 3])]);
        assert_eq!(share_of(&two, 1), Share { ranks: 2, sharing: 1, cpus: vec![2, 3] });
    }

    #[test]
    fn more_ranks_than_cpus_are_left_to_the_system() {
        let three = seats(&[("a", &[0, 1]), ("a", &[0, 1]), ("a", &[0, 1])]);
        assert_eq!(share_of(&three, 1), Share { ranks: 3, sharing: 3, cpus: vec![] });
    }

    #[test]
    fn seats_travel_as_bytes() {
        let seat = RankPlacement { machine: "a b".into(), cpus: vec![3, 17] };
        assert_eq!(RankPlacement::from_bytes(&seat.to_bytes()), seat);
        let unknown = RankPlacement { machine: "a".into(), cpus: vec![] };
        assert_eq!(RankPlacement::from_bytes(&unknown.to_bytes()), unknown);
    }
}
