//! What goes from an engine's thread to whoever holds a reply.
//!
//! One queue between the two, whose room is kept: an event takes no memory of its own, which a channel that makes a node or
//! a block for what it is sent would take with every token.

use futures::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Events for which there is room from the beginning; more of them are seldom on their way.
const ROOM: usize = 16;

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// nobody takes events any more
    unwanted: AtomicBool,
}

struct Queue<T> {
    events: VecDeque<T>,
    /// who waits for the next
    waker: Option<Waker>,
    /// no more come
    over: bool,
}

/// The side that sends. When it is dropped the events end.
pub struct Events<T>(Arc<Shared<T>>);

/// The side that takes: a [`Stream`]. When it is dropped nothing more is kept.
pub struct Taken<T>(Arc<Shared<T>>);

/// A queue of events.
pub fn events<T>() -> (Events<T>, Taken<T>) {
    let queue = Queue { events: VecDeque::with_capacity(ROOM), waker: None, over: false };
    let shared = Arc::new(Shared { queue: Mutex::new(queue), unwanted: AtomicBool::new(false) });
    (Events(shared.clone()), Taken(shared))
}

impl<T> Shared<T> {
    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the queue and, where that was done, wakes who waits.
    fn tell(&self, change: impl FnOnce(&mut Queue<T>) -> Result<(), ()>) -> Result<(), ()> {
        let waker = {
            let mut queue = self.queue();
            change(&mut queue)?;
            queue.waker.take()
        };
        // whatever it does, the queue is free
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }
}

impl<T> Events<T> {
    /// Sends an event; `Err`: nobody takes it.
    pub fn send(&self, event: T) -> Result<(), ()> {
        self.0.tell(|queue| {
            if self.is_closed() {
                return Err(());
            }
            queue.events.push_back(event);
            Ok(())
        })
    }

    /// Whether nobody takes events any more.
    pub fn is_closed(&self) -> bool {
        self.0.unwanted.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Events<T> {
    fn drop(&mut self) {
        let _ = self.0.tell(|queue| {
            queue.over = true;
            Ok(())
        });
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        let left = {
            let mut queue = self.0.queue();
            self.0.unwanted.store(true, Ordering::Relaxed);
            std::mem::take(&mut queue.events)
        };
        // whatever that does, the queue is free
        drop(left);
    }
}

impl<T> Stream for Taken<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut queue = self.0.queue();
        match queue.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if queue.over => Poll::Ready(None),
            None => {
                if !queue.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                    queue.waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use futures::executor::block_on;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[test]
    fn events_come_in_order_and_end_with_their_sender() {
        let (send, taken) = events();
        let sender = std::thread::spawn(move || (0..1000).for_each(|i| send.send(i).expect("wanted")));
        assert_eq!(block_on(taken.collect::<Vec<_>>()), (0..1000).collect::<Vec<_>>());
        sender.join().expect("sent");
    }

    /// How often it was woken.
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_is_woken_by_an_event_and_by_the_end() {
        let (send, mut taken) = events();
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let mut poll = || Pin::new(&mut taken).poll_next(&mut Context::from_waker(&waker));
        let times = || woken.0.load(Ordering::Relaxed);
        assert_eq!((poll(), poll(), times()), (Poll::Pending, Poll::Pending, 0));
        send.send(7).expect("wanted");
        // of events that nobody waits for nobody is told
        send.send(8).expect("wanted");
        assert_eq!((times(), poll(), poll(), poll()), (1, Poll::Ready(Some(7)), Poll::Ready(Some(8)), Poll::Pending));
        drop(send);
        assert_eq!((times(), poll(), poll()), (2, Poll::Ready(None), Poll::Ready(None)));
    }

    #[test]
    fn what_nobody_takes_is_not_kept() {
        let (send, taken) = events();
        let event = Arc::new(());
        send.send(event.clone()).expect("wanted");
        assert!(!send.is_closed());
        drop(taken);
        assert!(send.is_closed() && send.send(event.clone()).is_err());
        assert_eq!(Arc::strong_count(&event), 1, "those on their way are gone too");
    }
}
