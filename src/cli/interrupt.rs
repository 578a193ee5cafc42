//! Ctrl-C.
//!
//! While nothing is held ([`hold`]) there is nothing to lose, and the first one ends the program where it stands, whatever a
//! driver or a library is busy with. While something is held it raises the flag that long work looks at ([`stop`]): who
//! holds it says how far it came and leaves. Drivers look at no flag, and one command of a software adapter may take
//! minutes: who has not looked within [`PATIENCE`] has its last words said for it. A second Ctrl-C ends the program at
//! once.

use super::notes::note;
use crate::stop::Stop;
use anyhow::Context;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The exit code of a program that was interrupted: 128 and the signal's number, as shells have it.
const CODE: i32 = 130;

/// How long work may go on without looking at the flag.
const PATIENCE: Duration = Duration::from_millis(100);

/// Whether an answer is under way that Ctrl-C ends, and not the program.
static ANSWER: AtomicU8 = AtomicU8::new(SILENT);
const SILENT: u8 = 0;
const LISTENING: u8 = 1;
const STOPPED: u8 = 2;

/// What is told of work that is cut off: on stdout, and in a line on stderr.
pub struct Words {
    pub out: String,
    pub err: String,
}

type LastWords = Box<dyn Fn() -> Words + Send>;

struct State {
    /// how many [`Held`] there are
    held: usize,
    pressed: bool,
    words: Option<LastWords>,
    /// somebody has seen the flag, and ends the program
    seen: bool,
}

static STATE: Mutex<State> = Mutex::new(State { held: 0, pressed: false, words: None, seen: false });
static STOP: LazyLock<Stop> = LazyLock::new(Stop::new);

fn state() -> MutexGuard<'static, State> {
    // two plain values, which no panic leaves half written
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the handler: from now on Ctrl-C does what this module describes.
pub fn catch() -> anyhow::Result<()> {
    ctrlc::set_handler(pressed).context("installing the Ctrl-C handler")
}

fn pressed() {
    let mut state = state();
    if std::io::stderr().is_terminal() {
        // past the ^C, and past a bar
        let _ = writeln!(std::io::stderr());
    }
    if ANSWER.compare_exchange(LISTENING, STOPPED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        return;
    }
    if state.pressed || state.held == 0 {
        note!("interrupted");
        // the lock is kept, so that nobody begins work that would be left half done
        end();
    }
    state.pressed = true;
    note!("stopping; press Ctrl-C again to end at once");
    drop(state);
    STOP.ask();
    // without this thread the program waits until somebody looks at the flag
    let _ = std::thread::Builder::new().name("last words".into()).spawn(|| {
        loop {
            std::thread::sleep(PATIENCE);
            say_last_words();
        }
    });
}

/// Ends the program when work has not looked at the flag, if it left words for that case and nothing is being
/// written that must be whole.
fn say_last_words() {
    let mut state = state();
    if state.seen {
        return;
    }
    let Some(words) = state.words.take().map(|words| words()) else { return };
    state.seen = true;
    // writing may block for ever; the second Ctrl-C must end the program all the same
    drop(state);
    note!("{}", words.err);
    let _ = std::io::stdout().write_all(words.out.as_bytes());
    leave();
}

/// Whoever sees the flag says so before saying anything else: from now on the last words are its own.
pub fn seen() {
    let mut state = state();
    if state.seen {
        drop(state);
        // the other thread is printing the last words
        loop {
            std::thread::park();
        }
    }
    state.seen = true;
}

/// Ends the process without its destructors: a driver's may wait for all work that was handed to it, and the system's would
/// run beside threads that are still at work.
fn end() -> ! {
    signal_hook::low_level::exit(CODE)
}

/// The flag that Ctrl-C raises while something is held.
pub fn stop() -> &'static Stop {
    &STOP
}

/// An answer of a chat: Ctrl-C ends it and the program goes on; a second one, before the answer has ended, does what it
/// always does.
#[must_use]
pub struct Answering(());

/// Listens until the value is dropped.
pub fn answering() -> Answering {
    ANSWER.store(LISTENING, Ordering::Relaxed);
    Answering(())
}

impl Answering {
    /// Whether the answer is not wanted any more.
    pub fn stopped(&self) -> bool {
        ANSWER.load(Ordering::Relaxed) == STOPPED
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        ANSWER.store(SILENT, Ordering::Relaxed);
    }
}

/// Something that must not be cut off: a file that is being written, or results that are only told at the end. Whoever
/// holds it looks at the flag.
#[must_use]
pub struct Hold(());

/// Holds until the value is dropped.
pub fn hold() -> Hold {
    state().held += 1;
    Hold(())
}

impl Hold {
    /// What is said when the flag is overlooked: asked for then, on another thread. Without any the flag is waited for.
    pub fn words(&self, words: impl Fn() -> Words + Send + 'static) {
        state().words = Some(Box::new(words));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = state();
        state.held -= 1;
        state.words = None;
    }
}

/// Runs something short to its end even if Ctrl-C is pressed, and ends the program after it if it was and nothing else is
/// held.
pub fn whole<R>(f: impl FnOnce() -> R) -> R {
    let words = {
        let mut state = state();
        state.held += 1;
        state.words.take()
    };
    let result = f();
    let mut state = state();
    state.held -= 1;
    state.words = words;
    if state.pressed && state.held == 0 {
        end();
    }
    result
}

/// Ends the program after an interruption, when all results are printed. Devices are not waited for, since they may still
/// be computing results that nobody wants any more.
pub fn leave() -> ! {
    // if stdout takes nothing more, whoever wrote to it has reported that
    let _ = std::io::stdout().flush();
    end()
}
