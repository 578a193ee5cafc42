//! A team of worker threads that wait actively, and the loops that run on it.
//!
//! A token is a hundred short pieces of parallel work, so what a piece costs to start and to join matters as much as the
//! work: waking a sleeping thread takes longer than many of them. Workers therefore spin for a while after each piece,
//! then give their time away, then sleep. Work is dealt out in fixed contiguous ranges, so that a thread meets the same
//! weights at every token; a thread that has finished its range helps with what is left of the others'. What a thread
//! takes at a time gets smaller the less is left of a range, so that nobody waits long for a core that is slow or busy.
//! Who computes what never changes a result.
//!
//! [`Team::install`] makes a team the current one of a thread, and the loops [`for_each`] and [`chunks_mut`] find it
//! there. Without one they run on rayon's current pool. Nothing here allocates once the team stands.

use super::scratch;
use crate::stop::Stop;
use rayon::prelude::*;
use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread spins before it begins to give its time away.
const SPIN: Duration = Duration::from_micros(40);

/// How long a worker without work stays awake in all: longer than the pause between two tokens.
const AWAKE: Duration = Duration::from_micros(400);

/// Fewest bytes a task should read to be worth claiming.
const TASK_BYTES: usize = 32 << 10;

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current::None) };
    /// the worker's number in its team; 0: no worker
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// What loops of this thread run on.
#[derive(Default)]
enum Current {
    /// rayon's pool
    #[default]
    None,
    /// this team, until it is asked to stop
    Team(Arc<Team>, Stop),
    /// this thread alone, for it is at work on a task
    Inside,
}

/// On a cache line of its own, or neighbours would slow each other down.
#[repr(align(128))]
struct Padded<T>(T);

/// A task loop given to the workers: `f(tasks)`, with the lifetime of the borrow taken off.
type Job = *const (dyn Fn(Range<usize>) + Sync);

/// Parts of [`Shared::gate`]: the number of workers inside, no entry any more, and from here on the number of the job.
const INSIDE: u64 = 0x7fff_ffff;
const CLOSED: u64 = 1 << 31;
const JOB: u64 = 1 << 32;

/// What the threads share.
struct Shared {
    /// the number of the current job, whether workers may still enter it, and how many are at work on it. Nobody waits
    /// for a worker that did not enter: on a busy machine it may not get a core before the others are done.
    gate: Padded<AtomicU64>,
    /// workers asleep
    sleepers: Padded<AtomicUsize>,
    /// the first task not taken yet of each thread's range
    next: Vec<Padded<AtomicUsize>>,
    tasks: AtomicUsize,
    /// tasks taken at a time, at most
    most: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    stop: AtomicBool,
    /// workers that stand at the gate for their first job, with what a thread's start and its tasks take behind them
    begun: AtomicUsize,
    bed: Mutex<()>,
    wake: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written only by the thread that holds `Team::turn`, while the gate is closed and no worker is inside,
// before it opens the gate (release); workers read it only after they entered (acquire) and before they leave. Everything
// else is Sync by itself.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is to a Sync closure.
unsafe impl Send for Shared {}

/// Threads that run loops together: the caller and `threads - 1` workers.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// one job at a time
    turn: Mutex<()>,
    /// the thread that is made slow, and thousandths of its time that it waits; 0: none
    slowed: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // what is guarded stays whole when a thread panics
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for `ready`, spinning first; false when `limit` has passed.
fn wait(ready: impl Fn() -> bool, limit: Option<Duration>) -> bool {
    for _ in 0..200 {
        if ready() {
            return true;
        }
        std::hint::spin_loop();
    }
    let start = Instant::now();
    loop {
        for _ in 0..50 {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        let waited = start.elapsed();
        if limit.is_some_and(|limit| waited > limit) {
            return false;
        }
        if waited > SPIN {
            // there may be fewer cores than threads
            std::thread::yield_now();
        }
    }
}

impl Shared {
    /// Takes tasks until none is left: first those of range `own`, then of the ranges after it.
    fn work(&self, own: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
        let threads = self.next.len();
        let (tasks, most) = (self.tasks.load(Ordering::Relaxed), self.most.load(Ordering::Relaxed));
        for i in 0..threads {
            let range = (own + i) % threads;
            let (next, end) = (&self.next[range].0, (range + 1) * tasks / threads);
            loop {
                let left = end.saturating_sub(next.load(Ordering::Relaxed));
                if left == 0 {
                    break;
                }
                // of what is left of a range no thread takes more than the others are done with meanwhile
                let count = (left / (2 * threads)).clamp(1, most);
                let first = next.fetch_add(count, Ordering::Relaxed);
                if first >= end {
                    break;
                }
                f(first..end.min(first + count));
            }
        }
    }

    fn keep(&self, result: Result<(), Box<dyn Any + Send>>) {
        if let Err(payload) = result {
            // the tasks nobody has taken stay undone
            self.next.iter().for_each(|n| n.0.store(usize::MAX / 2, Ordering::Relaxed));
            lock(&self.panic).get_or_insert(payload);
        }
    }

    fn worker(&self, own: usize) {
        CURRENT.set(Current::Inside);
        NUMBER.set(own);
        scratch::reserve(scratch::WORKER);
        self.begun.fetch_add(1, Ordering::Release);
        let mut seen = 0;
        loop {
            let number = || self.gate.0.load(Ordering::SeqCst) / JOB;
            if !wait(|| number() != seen, Some(AWAKE)) {
                let mut bed = lock(&self.bed);
                self.sleepers.0.fetch_add(1, Ordering::SeqCst);
                while number() == seen {
                    bed = self.wake.wait(bed).unwrap_or_else(PoisonError::into_inner);
                }
                self.sleepers.0.fetch_sub(1, Ordering::SeqCst);
            }
            let open = |gate| if gate & CLOSED == 0 { Some(gate + 1) } else { None };
            let entered = self.gate.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, open);
            seen = entered.unwrap_or_else(|closed| closed) / JOB;
            if entered.is_err() {
                // looked at only now: the gate that says so is closed for good, and `seen` will not change again
                if self.stop.load(Ordering::Acquire) {
                    return;
                }
                continue;
            }
            // SAFETY: this worker is inside: the job is there, and the borrow behind it lives until it has left.
            let job = unsafe { (*self.job.get()).map(|job| &*job) };
            if let Some(f) = job {
                self.keep(catch_unwind(AssertUnwindSafe(|| self.work(own, f))));
            }
            self.gate.0.fetch_sub(1, Ordering::Release);
        }
    }

    /// Moves on to the next job, the gate open (0) or CLOSED, and wakes who sleeps.
    fn announce(&self, gate: u64) {
        let number = self.gate.0.load(Ordering::Relaxed) / JOB;
        self.gate.0.store(number.wrapping_add(1).wrapping_mul(JOB) | gate, Ordering::SeqCst);
        if self.sleepers.0.load(Ordering::SeqCst) > 0 {
            // a worker holds the lock from its last look at the gate until it sleeps
            drop(lock(&self.bed));
            self.wake.notify_all();
        }
    }
}

impl Team {
    /// Starts the workers and waits until each has begun; `threads` 0 means one thread per core. The error is the
    /// system's, of the thread that could not be started.
    pub fn new(threads: usize) -> std::io::Result<Arc<Team>> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        let zero = || Padded(AtomicUsize::new(0));
        let shared = Arc::new(Shared {
            gate: Padded(AtomicU64::new(CLOSED)),
            sleepers: zero(),
            next: (0..threads).map(|_| zero()).collect(),
            tasks: AtomicUsize::new(0),
            most: AtomicUsize::new(1),
            job: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
            bed: Mutex::new(()),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        let mut team = Team { shared, workers: Vec::new(), turn: Mutex::new(()), slowed: AtomicU64::new(0) };
        for i in 1..threads {
            let shared = team.shared.clone();
            let worker = std::thread::Builder::new().name(format!("isobit-{i}")).spawn(move || shared.worker(i))?;
            team.workers.push(worker);
        }
        // a thread's start takes memory, and on a busy machine it may come many tokens later
        wait(|| team.shared.begun.load(Ordering::Acquire) == team.workers.len(), None);
        Ok(Arc::new(team))
    }

    /// Threads of the team, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `f` with this team as the current one of this thread.
    pub fn install<R>(self: &Arc<Team>, f: impl FnOnce() -> R) -> R {
        self.install_until(&Stop::default(), f)
    }

    /// As [`Team::install`]; once `stop` is asked for, loops leave their remaining tasks out. Who sees the flag down after
    /// a loop knows that the loop did all of them.
    pub fn install_until<R>(self: &Arc<Team>, stop: &Stop, f: impl FnOnce() -> R) -> R {
        let _restore = Restore(CURRENT.replace(Current::Team(self.clone(), stop.clone())));
        f()
    }

    /// For tests and measurements of uneven cores: from the next loop on, worker `thread` (1 is the first; 0: the thread
    /// that calls) takes `times` as long for every task as it would, the rest of it spinning. 1: no longer.
    #[doc(hidden)]
    pub fn slow(&self, thread: usize, times: f64) {
        let extra = ((times - 1.0).max(0.0) * 1000.0) as u64;
        self.slowed.store(if extra > 0 { (thread as u64) << 32 | extra } else { 0 }, Ordering::Relaxed);
    }

    /// `f` of every task, some at a time but at most `most`, on all threads; returns when all are done. A panic of any
    /// thread is passed on, after every thread has stopped.
    fn run(&self, tasks: usize, most: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
        let _turn = lock(&self.turn);
        match self.slowed.load(Ordering::Relaxed) {
            0 => self.run_in_turn(tasks, most, f),
            slowed => self.run_in_turn(tasks, most, &|tasks| {
                let start = Instant::now();
                f(tasks);
                if NUMBER.get() as u64 == slowed >> 32 {
                    let until = start.elapsed().mul_f64(1.0 + (slowed & 0xffff_ffff) as f64 / 1000.0);
                    while start.elapsed() < until {
                        std::hint::spin_loop();
                    }
                }
            }),
        }
    }

    /// [`Team::run`] by the thread that has the turn.
    fn run_in_turn(&self, tasks: usize, most: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
        let shared = &*self.shared;
        let threads = self.threads();
        for (i, next) in shared.next.iter().enumerate() {
            next.0.store(i * tasks / threads, Ordering::Relaxed);
        }
        shared.tasks.store(tasks, Ordering::Relaxed);
        shared.most.store(most, Ordering::Relaxed);
        // SAFETY: only the lifetime changes. The borrow ends after this function returns, and it returns only when the gate
        // is closed and nobody inside, after which no worker touches the job; a panic of this thread's own part is held
        // back until then.
        let job = unsafe { std::mem::transmute::<&(dyn Fn(Range<usize>) + Sync), Job>(f) };
        // SAFETY: this thread has the turn, and the gate is closed with nobody inside since the last job ended.
        unsafe { *shared.job.get() = Some(job) };
        shared.announce(0);
        shared.keep(catch_unwind(AssertUnwindSafe(|| shared.work(0, f))));
        // every task is taken; who is inside may still be at work on one
        shared.gate.0.fetch_or(CLOSED, Ordering::AcqRel);
        wait(|| shared.gate.0.load(Ordering::Acquire) & INSIDE == 0, None);
        let panic = lock(&shared.panic).take();
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // there is no job to enter
        self.shared.announce(CLOSED);
        for worker in self.workers.drain(..) {
            // a worker catches every panic of its tasks
            let _ = worker.join();
        }
    }
}

/// Puts the thread's earlier choice back, also when unwinding.
struct Restore(Current);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(std::mem::take(&mut self.0));
    }
}

/// Threads a loop of this thread would run on.
pub fn threads() -> usize {
    CURRENT.with_borrow(|current| match current {
        Current::None => rayon::current_num_threads(),
        Current::Team(team, _) => team.threads(),
        Current::Inside => 1,
    })
}

/// `f(task)` for every task of `0..tasks`, once each, on the current team. Loops inside `f` run on the thread they are
/// called from. A panic of `f` is passed on when all threads have stopped.
pub fn for_each(tasks: usize, f: impl Fn(usize) + Sync) {
    batches(tasks, 1, |tasks| tasks.for_each(&f));
}

/// `f(tasks)` for ranges that make up `0..tasks`, of `most` tasks at most where there are threads to share them, and
/// shorter ones towards the end. Otherwise as [`for_each`].
pub fn batches(tasks: usize, most: usize, f: impl Fn(Range<usize>) + Sync) {
    let most = most.max(1);
    if tasks <= 1 {
        return if tasks > 0 {
            f(0..tasks)
        };
    }
    let restore = Restore(CURRENT.replace(Current::Inside));
    match &restore.0 {
        Current::None => {
            CURRENT.set(Current::None);
            let piece = |i: usize| f(i * most..tasks.min((i + 1) * most));
            (0..tasks.div_ceil(most)).into_par_iter().with_max_len(1).for_each(piece);
        }
        Current::Team(team, stop) => {
            let f = |tasks| {
                if !stop.asked() {
                    f(tasks)
                }
            };
            if team.threads() > 1 { team.run(tasks, most, &f) } else { (0..tasks).for_each(|i| f(i..i + 1)) }
        }
        Current::Inside => f(0..tasks),
    }
}

/// `f(range)` for ranges that make up `0..n`, of at least `least` items each (but the last), on the current team: as many
/// as keep every thread busy to the end.
pub fn ranges(n: usize, least: usize, f: impl Fn(Range<usize>) + Sync) {
    /// Parts of a thread's share: the largest that is taken at a time, and the smallest.
    const LARGE: usize = 8;
    const SMALL: usize = 64;

    let threads = threads();
    if threads == 1 {
        return if n > 0 {
            f(0..n)
        };
    }
    let size = least.max(n.div_ceil(threads * SMALL)).max(1);
    let tasks = n.div_ceil(size);
    batches(tasks, tasks / (threads * LARGE), |r| f(r.start * size..n.min(r.end * size)));
}

/// Items a task should have when one reads `bytes`.
pub const fn items_of(bytes: usize) -> usize {
    TASK_BYTES.div_ceil(if bytes == 0 { 1 } else { bytes })
}

/// `f(first item, items)` for pieces of `items`, cut between items of `size` elements, at least `least` items a piece (but
/// the last), on the current team. `items` is a multiple of `size`.
pub fn chunks_mut<T: Send + Sync>(items: &mut [T], size: usize, least: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    struct Base<T>(*mut T);
    // SAFETY: the pointer is only used to make slices that do not overlap, of elements that may change threads.
    unsafe impl<T: Send> Sync for Base<T> {}
    impl<T> Base<T> {
        fn at(&self, i: usize) -> *mut T {
            self.0.wrapping_add(i)
        }
    }

    assert!(size > 0 && items.len().is_multiple_of(size), "chunks_mut: {} elements by {size}", items.len());
    let n = items.len() / size;
    let base = Base(items.as_mut_ptr());
    ranges(n, least, |r| {
        // SAFETY: `ranges` gives every item of 0..n to one call, so the slices lie within `items`, exclusively borrowed
        // here, and do not overlap.
        let piece = unsafe { std::slice::from_raw_parts_mut(base.at(r.start * size), r.len() * size) };
        f(r.start, piece);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn met(tasks: usize, run: impl Fn(&(dyn Fn(usize) + Sync))) {
        let met: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
        run(&|i| {
            met[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(met.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{tasks} tasks");
    }

    #[test]
    fn every_task_runs_once_whatever_the_threads_and_the_pauses() {
        for threads in [1, 2, 3, 9] {
            let team = Team::new(threads).unwrap();
            assert_eq!(team.install(super::threads), threads);
            for round in 0..300 {
                if round % 100 == 99 {
                    // long enough for the workers to fall asleep
                    std::thread::sleep(AWAKE * 4);
                }
                for tasks in [0, 1, 2, 5, 100] {
                    team.install(|| met(tasks, |f| for_each(tasks, f)));
                    team.install(|| met(tasks, |f| ranges(tasks, 3, |r| r.for_each(f))));
                }
            }
        }
        met(17, |f| for_each(17, f));
    }

    #[test]
    fn chunks_cover_the_slice_and_know_their_place() {
        let team = Team::new(3).unwrap();
        let mut items = vec![0usize; 7 * 100];
        team.install(|| {
            chunks_mut(&mut items, 7, 2, |first, piece| {
                piece.iter_mut().enumerate().for_each(|(i, x)| *x += first * 7 + i + 1);
            });
        });
        assert!(items.iter().enumerate().all(|(i, &x)| x == i + 1));
    }

    #[test]
    fn a_panic_in_a_task_surfaces_and_the_team_lives_on() {
        let team = Team::new(3).unwrap();
        for bad in [0, 50, 99] {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                team.install(|| for_each(100, |i| assert!(i != bad, "task {bad} was refused")))
            }));
            let message = *caught.unwrap_err().downcast::<String>().unwrap();
            assert!(message.contains("was refused"), "{message}");
            team.install(|| met(100, |f| for_each(100, f)));
        }
    }

    #[test]
    fn a_loop_within_a_task_stays_on_its_thread() {
        let team = Team::new(4).unwrap();
        team.install(|| {
            for_each(8, |_| {
                assert_eq!(super::threads(), 1);
                let here = std::thread::current().id();
                for_each(5, |_| assert_eq!(std::thread::current().id(), here));
            });
            assert_eq!(super::threads(), 4);
        });
    }

    #[test]
    fn a_team_that_is_asked_to_stop_leaves_the_remaining_tasks_out() {
        for threads in [1, 3] {
            let (team, stop, done) = (Team::new(threads).unwrap(), Stop::new(), AtomicU32::new(0));
            let count = |_| {
                done.fetch_add(1, Ordering::Relaxed);
            };
            team.install_until(&stop, || for_each(1000, count));
            assert_eq!(done.swap(0, Ordering::Relaxed), 1000);
            let halt = |task: usize| {
                count(task);
                stop.ask();
            };
            team.install_until(&stop, || for_each(1000, halt));
            // each thread may have been at one when the first asked
            assert!((1..=threads as u32).contains(&done.swap(0, Ordering::Relaxed)), "{threads} threads");
            team.install(|| for_each(1000, count));
            assert_eq!(done.into_inner(), 1000);
        }
    }

    #[test]
    fn a_slow_thread_leaves_its_range_to_the_others() {
        // tasks that sleep take their time on a busy machine too
        let share = |times: f64| {
            let (team, slow) = (Team::new(2).unwrap(), AtomicU32::new(0));
            team.slow(1, times);
            team.install(|| {
                ranges(400, 1, |r| {
                    let n = r.len() as u32;
                    std::thread::sleep(Duration::from_micros(100) * n);
                    slow.fetch_add(if NUMBER.get() == 1 { n } else { 0 }, Ordering::Relaxed);
                })
            });
            slow.into_inner()
        };
        // a quarter by its speed; had it kept its own range, half
        assert!(share(3.0) <= 150, "{} of 400 items", share(3.0));
    }

    #[test]
    fn what_is_taken_at_a_time_gets_smaller_and_is_never_more_than_allowed() {
        let team = Team::new(2).unwrap();
        let sizes = Mutex::new(Vec::new());
        team.install(|| {
            batches(1000, 40, |r| {
                lock(&sizes).push(r.len());
                std::thread::sleep(Duration::from_micros(20));
            })
        });
        let sizes = sizes.into_inner().unwrap();
        assert_eq!(sizes.iter().sum::<usize>(), 1000);
        assert_eq!((sizes.iter().max(), sizes.iter().min()), (Some(&40), Some(&1)), "{sizes:?}");
    }

    #[test]
    fn two_threads_may_share_a_team() {
        let team = Team::new(2).unwrap();
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| (0..200).for_each(|_| team.install(|| met(9, |f| for_each(9, f)))));
            }
        });
    }
}
