//! Control messages between ranks without MPI: every rank has one connection to rank 0, which collects and distributes.
//!
//! It carries NCCL's id, flags that are compared, and decisions; tensors go through NCCL. Rank 0 listens at
//! `MASTER_ADDR` and `MASTER_PORT`, as PyTorch launchers set them. A closed connection means that a rank has gone; one
//! on which nothing arrives, not even the heartbeats that a thread of each rank sends, means that it hangs.

use super::error::RanksError;
use super::launch::Launched;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The address of rank 0, and the name that the ranks of one job share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    pub host: String,
    /// The first free one is used.
    pub ports: Vec<u16>,
    pub job: String,
}

/// Number of ports to try: the launcher's own store may occupy the named one.
const PORTS: u16 = 8;

impl Meeting {
    /// Reads the launcher's variables.
    pub fn of(by: &'static str, variable: impl Fn(&str) -> Option<String>) -> Result<Meeting, RanksError> {
        let (Some(host), Some(port)) = (variable("MASTER_ADDR"), variable("MASTER_PORT")) else {
            return Err(RanksError::NoMeeting { by });
        };
        let Ok(port) = port.trim().parse::<u16>() else { return Err(RanksError::NotAPort { port }) };
        // torchrun serves its own store at this port.
        let first = u16::from(variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True"));
        let ports = (first..first + PORTS).filter_map(|more| port.checked_add(more)).collect();
        let names = ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "HEADROOM_JOB"];
        let job = names.iter().find_map(|name| variable(name)).unwrap_or_default();
        Ok(Meeting { host, ports, job })
    }

    fn addresses(&self, port: u16) -> Vec<SocketAddr> {
        (self.host.as_str(), port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
    }
}

/// Begins every connection, to detect another program at the same port.
const GREETING: &[u8; 16] = b"headroom ranks 1";

/// Polls without pausing for this long, then with pauses.
const EAGER: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_micros(50);

/// Longest time between two heartbeats.
const PULSE: Duration = Duration::from_secs(1);

const MOST_BYTES: u64 = 1 << 28;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Words = 1,
    /// The sender gives up; the message says why.
    Failure = 2,
    /// A heartbeat.
    Heartbeats = 3,
}

/// The writing end, shared by the sender and the heartbeat thread.
type Out = Arc<Mutex<TcpStream>>;

/// One end of a connection, with received bytes that were not consumed yet.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    out: Out,
    inbox: Vec<u8>,
    closed: bool,
    /// When something last arrived.
    heard: Instant,
    /// When the last poll began.
    looked: Instant,
}

impl Line {
    fn new(stream: TcpStream) -> std::io::Result<Line> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let out = Arc::new(Mutex::new(stream.try_clone()?));
        let now = Instant::now();
        Ok(Line { stream, out, inbox: vec![], closed: false, heard: now, looked: now })
    }

    /// Reads what has arrived.
    fn look(&mut self) {
        self.looked = Instant::now();
        let mut piece = [0; 1 << 16];
        while !self.closed {
            match self.stream.read(&mut piece) {
                Ok(0) => self.closed = true,
                Ok(count) => {
                    self.inbox.extend_from_slice(&piece[..count]);
                    self.heard = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.closed = true,
            }
        }
        while self.inbox.len() >= HEAD && self.inbox[0] == Kind::Heartbeats as u8 {
            self.inbox.drain(..HEAD);
        }
    }

    /// Whether nothing arrived for longer than the patience, between `since` and the last poll. A rank that was itself
    /// stalled between two polls does not blame the others for it.
    fn is_silent(&self, since: Instant, patience: Duration) -> bool {
        self.looked.saturating_duration_since(self.heard.max(since)) > patience
    }

    /// The next complete message, if there is one.
    fn take(&mut self) -> Option<(Kind, Vec<u8>)> {
        let length = u64::from_le_bytes(self.inbox.get(1..HEAD)?.try_into().ok()?);
        if length > MOST_BYTES {
            self.closed = true;
            return None;
        }
        let end = HEAD + length as usize;
        if self.inbox.len() < end {
            return None;
        }
        let kind = if self.inbox[0] == Kind::Words as u8 { Kind::Words } else { Kind::Failure };
        let words = self.inbox[HEAD..end].to_vec();
        self.inbox.drain(..end);
        Some((kind, words))
    }

    /// Returns false if it could not be sent in time.
    fn send(&mut self, kind: Kind, words: &[u8], until: Instant) -> bool {
        self.send_plain(&message(kind, words), until)
    }

    fn send_plain(&mut self, bytes: &[u8], until: Instant) -> bool {
        written(&mut locked(&self.out), bytes, until)
    }
}

/// Bytes before each message: its kind and length.
const HEAD: usize = 9;

fn message(kind: Kind, words: &[u8]) -> Vec<u8> {
    let mut all = vec![kind as u8];
    all.extend((words.len() as u64).to_le_bytes());
    all.extend(words);
    all
}

fn locked(out: &Out) -> MutexGuard<'_, TcpStream> {
    out.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes all bytes; returns false if the peer does not accept them in time.
fn written(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> bool {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => thread::sleep(PAUSE),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// Sends heartbeats until the star is dropped.
fn give_signs(outs: Vec<Out>, ends: Arc<AtomicBool>, every: Duration) {
    let sign = message(Kind::Heartbeats, &[]);
    while !ends.load(Ordering::Relaxed) {
        for out in &outs {
            // If the lock is taken, a message is being sent, which serves as a heartbeat.
            if let Ok(mut stream) = out.try_lock() {
                written(&mut stream, &sign, Instant::now() + every);
            }
        }
        thread::sleep(every);
    }
}

/// This rank's connections: rank 0 has one to each other rank, the others have one to rank 0.
#[derive(Debug)]
pub struct Star {
    rank: usize,
    size: usize,
    lines: Vec<Line>,
    patience: Duration,
    ends: Arc<AtomicBool>,
}

impl Drop for Star {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // This also closes the heartbeat thread's ends of the connections.
        self.lines.iter().for_each(|line| {
            let _ = line.stream.shutdown(Shutdown::Both);
        });
    }
}

impl Star {
    /// Connects to the other ranks, for as long as the patience lasts.
    pub fn meet(launched: &Launched, meeting: &Meeting, patience: Duration) -> Result<Star, RanksError> {
        let &Launched { rank, size, .. } = launched;
        let until = Instant::now() + patience;
        let lines = match rank {
            0 => welcome(size, meeting, patience, until)?,
            _ => vec![visit(rank, size, meeting, patience, until)?],
        };
        let (outs, ends) = (lines.iter().map(|line| Arc::clone(&line.out)).collect(), Arc::new(AtomicBool::new(false)));
        let (own, every) = (Arc::clone(&ends), PULSE.min(patience / 4));
        thread::Builder::new()
            .name("signs of life".into())
            .spawn(move || give_signs(outs, own, every))
            .map_err(|error| RanksError::Thread { error: error.to_string() })?;
        Ok(Star { rank, size, lines, patience, ends })
    }

    /// Every rank's message, in rank order. Waits for a rank that has something long to do first.
    pub fn gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        match self.rank {
            0 => self.collect(mine),
            _ => self.contribute(mine),
        }
    }

    fn collect(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        let (begin, patience) = (Instant::now(), self.patience);
        let mut said: Vec<Option<Vec<u8>>> = vec![None; self.size];
        said[0] = Some(mine.to_vec());
        let error = loop {
            let mut gone = None;
            for (index, line) in self.lines.iter_mut().enumerate() {
                if said[index + 1].is_some() {
                    continue;
                }
                line.look();
                match line.take() {
                    Some((Kind::Words, words)) => said[index + 1] = Some(words),
                    Some(_) => gone = Some(index + 1),
                    None if line.closed => gone = Some(index + 1),
                    None => {}
                }
            }
            if let Some(rank) = gone {
                break Some(RanksError::Closed { rank });
            }
            if said.iter().all(Option::is_some) {
                break None;
            }
            let is_missing = |rank: &usize| said[*rank].is_none() && self.lines[rank - 1].is_silent(begin, patience);
            let missing: Vec<usize> = (1..self.size).filter(is_missing).collect();
            if !missing.is_empty() {
                break Some(RanksError::Silent { missing, seconds: patience.as_secs_f64() });
            }
            pause(begin);
        };
        if let Some(error) = error {
            self.tell(&error);
            return Err(error);
        }
        let said: Vec<Vec<u8>> = said.into_iter().flatten().collect();
        let mut all = vec![];
        for words in &said {
            all.extend((words.len() as u64).to_le_bytes());
            all.extend(words);
        }
        let until = Instant::now() + patience;
        let sent: Vec<bool> = self.lines.iter_mut().map(|line| line.send(Kind::Words, &all, until)).collect();
        match sent.iter().position(|sent| !sent) {
            Some(index) => Err(RanksError::Closed { rank: index + 1 }),
            None => Ok(said),
        }
    }

    fn contribute(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        let (begin, patience) = (Instant::now(), self.patience);
        let line = &mut self.lines[0];
        // A failed send is not final: rank 0 may have said why before it closed.
        let sent = line.send(Kind::Words, mine, begin + patience);
        loop {
            line.look();
            match line.take() {
                Some((Kind::Words, words)) => return taken_apart(&words, self.size),
                Some((_, words)) => return Err(failure(&words)),
                None if line.closed || !sent => return Err(RanksError::Closed { rank: 0 }),
                None => {}
            }
            if line.is_silent(begin, patience) {
                return Err(RanksError::Silent { missing: vec![0], seconds: patience.as_secs_f64() });
            }
            pause(begin);
        }
    }

    /// A rank that has gone, as far as its connection shows.
    pub fn lost_rank(&mut self) -> Option<usize> {
        for (index, line) in self.lines.iter_mut().enumerate() {
            line.look();
            let failed = line.inbox.first().is_some_and(|kind| *kind == Kind::Failure as u8);
            if failed || (line.closed && line.inbox.is_empty()) {
                return Some(if self.rank == 0 { index + 1 } else { 0 });
            }
        }
        None
    }

    /// Tells the other ranks why this one ends.
    pub fn tell(&mut self, error: &RanksError) {
        let words = match error {
            RanksError::Silent { missing, seconds } => {
                let numbers: Vec<String> = missing.iter().map(usize::to_string).collect();
                format!("silent {seconds} {}", numbers.join(" "))
            }
            RanksError::Closed { rank } => format!("gone {rank}"),
            _ => format!("gone {}", self.rank),
        };
        let until = Instant::now() + Duration::from_millis(200);
        self.lines.iter_mut().for_each(|line| {
            line.send(Kind::Failure, words.as_bytes(), until);
        });
    }
}

fn failure(words: &[u8]) -> RanksError {
    let text = String::from_utf8_lossy(words).into_owned();
    let mut parts = text.split(' ');
    let kind = parts.next();
    let numbers: Vec<f64> = parts.filter_map(|part| part.parse().ok()).collect();
    match (kind, &numbers[..]) {
        (Some("silent"), [seconds, missing @ ..]) => {
            RanksError::Silent { missing: missing.iter().map(|rank| *rank as usize).collect(), seconds: *seconds }
        }
        (Some("gone"), [rank]) => RanksError::Closed { rank: *rank as usize },
        _ => RanksError::Closed { rank: 0 },
    }
}

fn taken_apart(mut words: &[u8], size: usize) -> Result<Vec<Vec<u8>>, RanksError> {
    let wrong = RanksError::OtherLength { rank: 0, have: words.len(), want: size };
    let mut all = vec![];
    for _ in 0..size {
        let Some((length, rest)) = words.split_at_checked(8) else { return Err(wrong) };
        let length = length.try_into().map_or(0, u64::from_le_bytes) as usize;
        let Some((own, rest)) = rest.split_at_checked(length) else { return Err(wrong) };
        all.push(own.to_vec());
        words = rest;
    }
    Ok(all)
}

/// Pauses between two polls: briefly at first, longer later.
fn pause(begin: Instant) {
    match begin.elapsed() < EAGER {
        true => thread::yield_now(),
        false => thread::sleep(PAUSE),
    }
}

/// Rank 0: waits for all other ranks.
fn welcome(size: usize, meeting: &Meeting, patience: Duration, until: Instant) -> Result<Vec<Line>, RanksError> {
    let listener = listen(meeting)?;
    let mut came: Vec<Option<Line>> = (1..size).map(|_| None).collect();
    let mut others = vec![];
    while came.iter().any(Option::is_none) {
        if Instant::now() >= until {
            let missing = (1..size).filter(|rank| came[rank - 1].is_none()).collect();
            return Err(RanksError::NotCome { missing, seconds: patience.as_secs_f64(), at: at(meeting) });
        }
        match listener.accept() {
            Ok((stream, _)) => others.extend(Line::new(stream).ok()),
            Err(_) => thread::sleep(Duration::from_millis(2)),
        }
        for line in &mut others {
            line.look();
        }
        // Rank, size and job arrive as one message after the greeting.
        for mut line in std::mem::take(&mut others) {
            let whole = line.inbox.len() >= GREETING.len();
            if line.closed || (whole && !line.inbox.starts_with(GREETING)) {
                continue;
            }
            if !whole {
                others.push(line);
                continue;
            }
            let greeting: Vec<u8> = line.inbox.drain(..GREETING.len()).collect();
            let Some((_, name)) = line.take() else {
                line.inbox.splice(..0, greeting);
                others.push(line);
                continue;
            };
            let soon = Instant::now() + Duration::from_secs(1);
            match admitted(&name, size, meeting, &came) {
                Ok(rank) if line.send(Kind::Words, b"", soon) => came[rank - 1] = Some(line),
                Ok(_) => {}
                Err(why) => {
                    line.send(Kind::Failure, why.as_bytes(), soon);
                }
            }
        }
    }
    Ok(came.into_iter().flatten().collect())
}

/// The rank that introduces itself with `name`, or the reason why it is rejected.
fn admitted(name: &[u8], size: usize, meeting: &Meeting, came: &[Option<Line>]) -> Result<usize, String> {
    let text = String::from_utf8_lossy(name).into_owned();
    let mut parts = text.splitn(3, ' ');
    let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok());
    let (Some(rank), Some(its_size)) = (number(), number()) else { return Err("it does not say its rank".into()) };
    let job = parts.next().unwrap_or("");
    if job != meeting.job {
        return Err(format!("it belongs to job `{job}`, and rank 0 to job `{}`", meeting.job));
    }
    if its_size != size {
        return Err(format!("it is one of {its_size} ranks, and rank 0 one of {size}"));
    }
    match came.get(rank.wrapping_sub(1)) {
        Some(None) => Ok(rank),
        Some(Some(_)) => Err(format!("another process is rank {rank} already")),
        None => Err(format!("there is no rank {rank} of {size}")),
    }
}

fn at(meeting: &Meeting) -> String {
    let [first, .., last] = &meeting.ports[..] else { return meeting.host.clone() };
    format!("{}:{first}-{last}", meeting.host)
}

fn listen(meeting: &Meeting) -> Result<TcpListener, RanksError> {
    let mut why = format!("{} is not a known host", meeting.host);
    for port in &meeting.ports {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), *port);
        // A service name may not resolve to an address of this machine.
        for address in meeting.addresses(*port).into_iter().chain([any]) {
            match TcpListener::bind(address) {
                Ok(listener) if listener.set_nonblocking(true).is_ok() => return Ok(listener),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    why = error.to_string();
                    break;
                }
                Err(error) => why = error.to_string(),
            }
        }
    }
    Err(RanksError::NotListening { at: at(meeting), why })
}

/// The other ranks: try to reach rank 0 until it answers.
fn visit(rank: usize, size: usize, meeting: &Meeting, patience: Duration, until: Instant) -> Result<Line, RanksError> {
    while Instant::now() < until {
        for address in meeting.ports.iter().flat_map(|port| meeting.addresses(*port)) {
            let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else { continue };
            let Ok(mut line) = Line::new(stream) else { continue };
            let name = format!("{rank} {size} {}", meeting.job);
            let soon = Instant::now() + Duration::from_secs(2);
            if !line.send_plain(GREETING, soon) || !line.send(Kind::Words, name.as_bytes(), soon) {
                continue;
            }
            // Rank 0 answers within milliseconds; another program might never answer.
            while Instant::now() < soon && !line.closed {
                line.look();
                match line.take() {
                    Some((Kind::Words, _)) => return Ok(line),
                    Some((_, why)) => {
                        let why = String::from_utf8_lossy(&why).into_owned();
                        return Err(RanksError::NotAdmitted { at: at(meeting), why });
                    }
                    None => thread::sleep(Duration::from_millis(1)),
                }
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(RanksError::NotCome { missing: vec![0], seconds: patience.as_secs_f64(), at: at(meeting) })
}

#[cfg(test)]
#[path = "star_tests.rs"]
mod tests;
