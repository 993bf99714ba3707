//! Heartbeats: every rank reports its progress to all others, whatever its main thread does, to tell a slow rank from a
//! hung one.

use super::error::RanksError;
use super::mpi::{Request, World};
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// The current activity of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankActivity {
    /// Saves, loads or writes: may run long without a device call.
    Other,
    /// Runs a step, in which calls follow each other.
    Steps,
    /// Its communication thread waits for control messages, or for tensors.
    Words,
    Tensors,
    /// Is leaving.
    Leaves,
}

const ALL: [RankActivity; 5] =
    [RankActivity::Other, RankActivity::Steps, RankActivity::Words, RankActivity::Tensors, RankActivity::Leaves];

impl RankActivity {
    pub fn waits(self) -> bool {
        matches!(self, RankActivity::Words | RankActivity::Tensors)
    }
}

/// A heartbeat as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sign {
    calls: u64,
    job: u64,
    doing: RankActivity,
}

const WORDS: usize = 3;
type Letter = [u64; WORDS];

impl Sign {
    fn to_letter(self) -> Letter {
        [self.calls, self.job, ALL.iter().position(|one| *one == self.doing).unwrap_or(0) as u64]
    }

    fn from_letter(letter: Letter) -> Sign {
        let [calls, job, doing] = letter;
        Sign { calls, job, doing: ALL.get(doing as usize).copied().unwrap_or(RankActivity::Other) }
    }
}

/// The known state of another rank.
struct Peer {
    rank: usize,
    inbox: Box<Letter>,
    outbox: Box<Letter>,
    coming: Vec<Request>,
    going: Vec<Request>,
    sign: Sign,
    /// Whether it was told that this rank is leaving.
    knows: bool,
    /// When something last came from it, and when that last showed progress.
    heard: Instant,
    moved: Instant,
}

/// The heartbeats of all ranks. MPI may write to it until the process ends, so it is never freed.
pub struct Heartbeats {
    peers: ManuallyDrop<Vec<Peer>>,
    patience: Duration,
    told: Option<Instant>,
    looked: Instant,
}

/// Multiple of the patience that a rank may spend without a call outside of steps: it saves or loads.
const OUTSIDE_STEPS: u32 = 30;

/// A rank that has left may still have messages in flight for this long.
const AFTER_LEAVE: Duration = Duration::from_secs(1);

/// If this thread did not poll for this long, it was itself stalled: the other ranks were not silent.
const HELD: Duration = Duration::from_secs(2);

/// The tag of heartbeats; all others are larger.
pub const TAG: i32 = 0;

impl Heartbeats {
    pub fn new(world: &World, patience: Duration) -> Heartbeats {
        let now = Instant::now();
        let peer = |rank| Peer {
            rank,
            inbox: Box::new([0; WORDS]),
            outbox: Box::new([0; WORDS]),
            coming: vec![],
            going: vec![],
            sign: Sign { calls: 0, job: 0, doing: RankActivity::Other },
            knows: false,
            heard: now,
            moved: now,
        };
        let peers = (0..world.size).filter(|rank| *rank != world.rank).map(peer).collect();
        Heartbeats { peers: ManuallyDrop::new(peers), patience, told: None, looked: now }
    }

    /// Time between two heartbeats.
    pub fn interval(&self) -> Duration {
        (self.patience / 8).clamp(Duration::from_millis(20), Duration::from_secs(1))
    }

    /// Sends this rank's heartbeat if it is due, and polls for those of the others.
    pub fn tell(&mut self, world: &World, (calls, doing): (u64, RankActivity), job: u64) -> Result<(), RanksError> {
        let now = Instant::now();
        let sign = Sign { calls, job, doing };
        let (leaves, interval) = (doing == RankActivity::Leaves, self.interval());
        let due = self.told.is_none_or(|told| now - told >= interval);
        if due {
            self.told = Some(now);
        }
        for peer in self.peers.iter_mut() {
            world.look(&mut peer.going)?;
            // The last heartbeat is sent once, as soon as the previous one has gone out: nobody receives another.
            let wanted = if leaves { !peer.knows } else { due };
            if wanted && peer.going.is_empty() {
                *peer.outbox = sign.to_letter();
                peer.knows = leaves;
                // SAFETY: the letter is never freed, and not written again before the request is done.
                unsafe { world.send(peer.rank, TAG, bytes(&peer.outbox), &mut peer.going)? };
            }
        }
        self.look(world, now)
    }

    fn look(&mut self, world: &World, now: Instant) -> Result<(), RanksError> {
        let held = now - self.looked > HELD.max(2 * self.interval());
        self.looked = now;
        for peer in self.peers.iter_mut() {
            if held {
                (peer.heard, peer.moved) = (now, now);
            }
            loop {
                if peer.sign.doing == RankActivity::Leaves {
                    break;
                }
                if peer.coming.is_empty() {
                    // SAFETY: as in `tell`.
                    unsafe { world.receive(peer.rank, TAG, bytes_mut(&mut peer.inbox), &mut peer.coming)? };
                }
                if !world.look(&mut peer.coming)? {
                    break;
                }
                let sign = Sign::from_letter(*peer.inbox);
                peer.heard = now;
                if sign != peer.sign {
                    (peer.sign, peer.moved) = (sign, now);
                }
            }
        }
        Ok(())
    }

    /// Whether all other ranks have left and know that this one leaves.
    pub fn all_left(&self) -> bool {
        let left = |peer: &Peer| peer.sign.doing == RankActivity::Leaves && peer.knows && peer.going.is_empty();
        self.peers.iter().all(left)
    }

    /// Why the `missing` ranks will not come, if that is certain. This rank has waited in `job`, doing `doing`, since
    /// `since`.
    pub fn verdict(&self, missing: &[usize], job: u64, doing: RankActivity, since: Instant) -> Option<RanksError> {
        let now = Instant::now();
        let seconds = self.patience.as_secs_f64();
        let among = |holds: &dyn Fn(&Peer) -> bool| -> Vec<usize> {
            let peers = self.peers.iter().filter(|peer| missing.contains(&peer.rank) && holds(peer));
            peers.map(|peer| peer.rank).collect()
        };
        let left = |peer: &Peer| peer.sign.doing == RankActivity::Leaves;
        let gone = among(&|peer| left(peer) && now - peer.moved > AFTER_LEAVE);
        if !gone.is_empty() && doing != RankActivity::Leaves {
            return Some(RanksError::Gone { missing: gone });
        }
        let silent = among(&|peer| !left(peer) && now - peer.heard > self.patience);
        if !silent.is_empty() {
            return Some(RanksError::Silent { missing: silent, seconds });
        }
        let hung = |peer: &Peer| match peer.sign.doing {
            RankActivity::Steps => now - peer.moved > self.patience,
            RankActivity::Other => now - peer.moved > self.patience * OUTSIDE_STEPS,
            _ => false,
        };
        let hung = among(&hung);
        if !hung.is_empty() {
            return Some(RanksError::Hung { missing: hung, seconds });
        }
        if doing == RankActivity::Leaves || now - since <= self.patience {
            return None;
        }
        let astray = |peer: &&Peer| {
            missing.contains(&peer.rank)
                && peer.sign.doing.waits()
                && (peer.sign.job, peer.sign.doing) != (job, doing)
                && now - peer.moved > self.patience
        };
        if let Some(peer) = self.peers.iter().find(astray) {
            let there = format!("{} {}", name(peer.sign.doing), peer.sign.job);
            return Some(RanksError::OutOfStep { rank: peer.rank, there, here: format!("{} {job}", name(doing)) });
        }
        let lost = among(&|peer| (peer.sign.job, peer.sign.doing) == (job, doing) && now - peer.moved > self.patience);
        (lost.len() == missing.len()).then_some(RanksError::Lost { missing: lost, seconds })
    }
}

fn name(doing: RankActivity) -> &'static str {
    if doing == RankActivity::Words { "words number" } else { "exchange number" }
}

fn bytes(letter: &Letter) -> &[u8] {
    // SAFETY: any bytes of a number are bytes, and the length is that of the same memory.
    unsafe { std::slice::from_raw_parts(letter.as_ptr().cast(), size_of::<Letter>()) }
}

fn bytes_mut(letter: &mut Letter) -> &mut [u8] {
    // SAFETY: any bytes are a number, and the length is that of the same memory, borrowed alone.
    unsafe { std::slice::from_raw_parts_mut(letter.as_mut_ptr().cast(), size_of::<Letter>()) }
}
