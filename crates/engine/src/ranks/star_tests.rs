//! Tests the star with ranks as threads, on loopback.

use super::*;
use crate::ranks::Launcher;
use std::sync::Barrier;

fn launched(rank: usize, size: usize) -> Launched {
    Launched { rank, size, local_size: None, local_rank: None, by: Launcher::Torchrun }
}

/// A meeting at ports that are most likely free.
fn meeting(job: &str) -> Meeting {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ports = (0..4).filter_map(|more| free.checked_add(more)).collect();
    Meeting { host: "127.0.0.1".into(), ports, job: job.into() }
}

/// Long enough for the other rank to arrive on a busy machine.
const SHORT: Duration = Duration::from_secs(3);

/// Runs `work` on the star of every rank and returns the results.
fn together<T: Send + 'static>(size: usize, work: impl Fn(Star) -> T + Clone + Send + 'static) -> Vec<T> {
    let meeting = meeting("job");
    let start = |rank: usize| {
        let (meeting, work) = (meeting.clone(), work.clone());
        thread::spawn(move || work(Star::meet(&launched(rank, size), &meeting, Duration::from_secs(20)).unwrap()))
    };
    let threads: Vec<_> = (0..size).map(start).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn words_of_every_rank_come_to_all_in_order() {
    let said = together(4, |mut star| {
        let mine = vec![star.rank as u8; 3 * star.rank];
        let first = star.gather(&mine).unwrap();
        // Longer than a connection accepts at once.
        let second = star.gather(&vec![7; star.rank << 20]).unwrap();
        (first, second.iter().map(Vec::len).collect::<Vec<_>>())
    });
    let want: Vec<Vec<u8>> = (0..4u8).map(|rank| vec![rank; 3 * rank as usize]).collect();
    for (first, second) in said {
        assert_eq!(first, want);
        assert_eq!(second, [0, 1 << 20, 2 << 20, 3 << 20]);
    }
}

#[test]
fn a_rank_that_says_nothing_is_named_to_all() {
    // Longer than the interval between two heartbeats.
    let patience = 2 * PULSE;
    let heard_by_all = Arc::new(Barrier::new(3));
    let said = together(3, move |mut star| {
        if star.rank == 1 {
            // Acts like a stopped process: not even heartbeats.
            star.ends.store(true, Ordering::Relaxed);
            heard_by_all.wait();
            return None;
        }
        if star.rank == 0 {
            star.patience = patience;
        }
        let error = star.gather(b"x").unwrap_err();
        heard_by_all.wait();
        Some(error)
    });
    let silent = Some(RanksError::Silent { missing: vec![1], seconds: patience.as_secs_f64() });
    assert_eq!((&said[0], &said[2]), (&silent, &silent));
}

#[test]
fn a_rank_that_has_something_long_to_do_is_waited_for() {
    let said = together(3, |mut star| {
        // Heartbeats come at least every second, well before the patience ends.
        star.patience = 3 * PULSE;
        if star.rank == 2 {
            thread::sleep(5 * PULSE);
        }
        star.gather(b"x").map(|said| said.len())
    });
    assert_eq!(said, [Ok(3), Ok(3), Ok(3)]);
}

#[test]
fn a_rank_that_goes_is_noticed_at_once_and_named_to_all() {
    let begin = Instant::now();
    let said = together(3, |mut star| {
        if star.rank == 2 {
            return None;
        }
        Some(star.gather(b"x").unwrap_err())
    });
    assert_eq!(said[0], Some(RanksError::Closed { rank: 2 }));
    assert_eq!(said[1], Some(RanksError::Closed { rank: 2 }));
    assert!(begin.elapsed() < Duration::from_secs(10), "the patience was 20 s");
    let gone = together(2, |mut star| {
        while star.rank == 0 {
            if let Some(rank) = star.lost_rank() {
                return Some(rank);
            }
        }
        None
    });
    assert_eq!(gone, [Some(1), None]);
}

#[test]
fn a_rank_of_another_job_or_size_is_turned_away_with_the_reason() {
    let ours = meeting("ours");
    for (theirs, size, why) in [
        (Meeting { job: "theirs".into(), ..ours.clone() }, 2, "it belongs to job `theirs`, and rank 0 to job `ours`"),
        (ours.clone(), 3, "it is one of 3 ranks, and rank 0 one of 2"),
    ] {
        let own = ours.clone();
        let first = thread::spawn(move || Star::meet(&launched(0, 2), &own, SHORT).map(|_| ()));
        let error = Star::meet(&launched(1, size), &theirs, Duration::from_secs(20)).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        let error = first.join().unwrap().unwrap_err();
        assert!(error.to_string().starts_with("rank 1 did not connect"), "{error}");
    }
}

#[test]
fn the_port_of_a_launchers_store_and_that_of_another_program_are_passed_over() {
    let variables = |name: &str| match name {
        "MASTER_ADDR" => Some("127.0.0.1".to_string()),
        "MASTER_PORT" => Some("29500".to_string()),
        "TORCHELASTIC_USE_AGENT_STORE" => Some("True".to_string()),
        "TORCHELASTIC_RUN_ID" => Some("7".to_string()),
        _ => None,
    };
    let found = Meeting::of("torchrun", variables).unwrap();
    assert_eq!((found.ports[0], found.ports.len(), &*found.job), (29501, 8, "7"));
    let plain = Meeting::of("the job", |name| variables(name).filter(|_| name.starts_with("MASTER"))).unwrap();
    assert_eq!(plain.ports[0], 29500);
    let none = Meeting::of("srun", |_| None).unwrap_err().to_string();
    assert!(none.contains("MASTER_ADDR"), "{none}");
    // A program that occupies the first port and never answers.
    let held = meeting("job");
    let Ok(_other) = TcpListener::bind(("127.0.0.1", held.ports[0])) else { return };
    let own = held.clone();
    let first = thread::spawn(move || Star::meet(&launched(0, 2), &own, Duration::from_secs(20)).is_ok());
    assert!(Star::meet(&launched(1, 2), &held, Duration::from_secs(20)).is_ok());
    assert!(first.join().unwrap());
}
