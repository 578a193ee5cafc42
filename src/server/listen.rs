//! Sockets: connections that must be quick about their headers, that must read what they asked for, and that end when the
//! server does.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep};

/// Connections at once.
pub const CONNECTIONS: usize = 4096;
/// How long a client may take for its headers, counted from the connection or from the answer before.
const HEADERS: Duration = Duration::from_secs(10);
/// How long a client may take to read something that is sent to it.
const BLOCKED: Duration = Duration::from_secs(30);
/// How long answers may take when the server ends, and how much of that is left for their last events.
pub const DRAIN: Duration = Duration::from_secs(10);
const LAST: Duration = Duration::from_millis(1500);

/// A connection on which a write may not take longer than [`BLOCKED`].
struct Patient {
    stream: TcpStream,
    blocked: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    /// What a write that has to wait comes to.
    fn wait<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let until = Instant::now() + BLOCKED;
        let timer = self.blocked.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        match timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wait(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What a server that ends is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// it runs
    Open,
    /// nothing new is taken
    Draining,
    /// answers end now, with a last event
    Ending,
}

/// Serves until `stop` comes, then lets answers end for ten seconds at most. `phase` is told how far that is.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    phase: Arc<watch::Sender<Phase>>,
    stop: impl Future<Output = ()>,
) {
    let (graceful, places) = (GracefulShutdown::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    let mut stop = std::pin::pin!(stop);
    loop {
        let place = tokio::select! {
            biased;
            () = &mut stop => break,
            place = places.clone().acquire_owned() => place,
        };
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(e) => {
                // of one client, or there are no file descriptors left: others may end meanwhile
                log::warn!("a connection was not accepted: {e}");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // tokens are small and must not wait for each other
        let _ = stream.set_nodelay(true);
        let io = TokioIo::new(Patient { stream, blocked: None });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADERS).max_headers(64).max_buf_size(16 << 10);
        builder.half_close(false);
        let service = TowerToHyperService::new(app.clone());
        let connection = graceful.watch(builder.serve_connection(io, service));
        tokio::spawn(async move {
            if let Err(e) = connection.await {
                log::debug!("a connection ended: {e}");
            }
            drop(place);
        });
    }
    drop(listener);
    // nobody may listen to phases
    let _ = phase.send(Phase::Draining);
    let all = graceful.shutdown();
    let mut all = std::pin::pin!(all);
    tokio::select! {
        () = &mut all => return,
        () = sleep(DRAIN - LAST) => {}
    }
    let _ = phase.send(Phase::Ending);
    let _ = tokio::time::timeout(LAST, all).await;
}
