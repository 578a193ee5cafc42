//! What the server counts, in Prometheus' text form and under llama.cpp's names where it has one.

use crate::engine::Status;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the histograms' buckets, in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// to its end
    Done,
    /// with an error
    Failed,
    /// its client was gone
    Cancelled,
}

#[derive(Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Histogram {
    fn add(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        if let Some(at) = BOUNDS.iter().position(|b| seconds <= *b) {
            self.buckets[at].fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        let mut below = 0;
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        for (bound, n) in BOUNDS.iter().zip(&self.buckets) {
            below += n.load(Relaxed);
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let count = self.count.load(Relaxed);
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum {}\n{name}_count {count}", seconds(&self.nanoseconds));
    }
}

fn seconds(nanoseconds: &AtomicU64) -> f64 {
    nanoseconds.load(Relaxed) as f64 / 1e9
}

/// All counters.
#[derive(Default)]
pub struct Metrics {
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    prompt_nanoseconds: AtomicU64,
    predicted_tokens: AtomicU64,
    predicted_nanoseconds: AtomicU64,
    first: Histogram,
    between: Histogram,
    /// answers that were begun, and how they ended
    begun: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    /// requests that were refused before anything was begun
    pub refused: AtomicU64,
}

impl Metrics {
    /// An answer was begun.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Relaxed);
    }

    /// An answer's first token came, `time` after it was asked for, of a prompt of `prompt` tokens of which the cache had
    /// `cached`.
    pub fn first(&self, prompt: usize, cached: usize, time: Duration) {
        self.prompt_tokens.fetch_add((prompt - cached.min(prompt)) as u64, Relaxed);
        self.cached_tokens.fetch_add(cached as u64, Relaxed);
        self.prompt_nanoseconds.fetch_add(time.as_nanos() as u64, Relaxed);
        self.predicted_tokens.fetch_add(1, Relaxed);
        self.first.add(time);
    }

    /// Another token came, `time` after the one before it.
    pub fn next(&self, time: Duration) {
        self.predicted_tokens.fetch_add(1, Relaxed);
        self.predicted_nanoseconds.fetch_add(time.as_nanos() as u64, Relaxed);
        self.between.add(time);
    }

    /// An answer ended.
    pub fn end(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Done => &self.done,
            Outcome::Failed => &self.failed,
            Outcome::Cancelled => &self.cancelled,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// The page `/metrics`.
    pub fn text(&self, status: &Status) -> String {
        let mut out = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: f64| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        };
        let n = |a: &AtomicU64| a.load(Relaxed) as f64;
        let rate = |tokens: f64, time: f64| if time > 0.0 { tokens / time } else { 0.0 };
        let (prompt, predicted) = (n(&self.prompt_tokens), n(&self.predicted_tokens));
        let (prompt_time, time) = (seconds(&self.prompt_nanoseconds), seconds(&self.predicted_nanoseconds));
        one("llamacpp:prompt_tokens_total", "counter", "Tokens of prompts that were computed.", prompt);
        one("llamacpp:prompt_seconds_total", "counter", "Seconds until first tokens.", prompt_time);
        one("llamacpp:tokens_predicted_total", "counter", "Tokens that were generated.", predicted);
        one("llamacpp:tokens_predicted_seconds_total", "counter", "Seconds between tokens.", time);
        one("llamacpp:n_decode_total", "counter", "Steps that were taken.", status.steps as f64);
        let busy = rate(status.texts as f64, status.steps as f64);
        one("llamacpp:n_busy_slots_per_decode", "gauge", "Texts in a step, on average.", busy);
        one("llamacpp:prompt_tokens_seconds", "gauge", "Prompt tokens a second.", rate(prompt, prompt_time));
        one(
            "llamacpp:predicted_tokens_seconds",
            "gauge",
            "Generated tokens a second of a text.",
            rate(predicted, time),
        );
        one("llamacpp:requests_processing", "gauge", "Texts at work.", status.running as f64);
        one("llamacpp:requests_deferred", "gauge", "Texts that wait.", status.waiting as f64);
        let used = (status.chunks - status.free.min(status.chunks)) as f64;
        let share = rate(used, status.chunks as f64);
        one("llamacpp:kv_cache_usage_ratio", "gauge", "Share of the cache that holds something.", share);
        one(
            "isobit:cached_prompt_tokens_total",
            "counter",
            "Tokens of prompts that the cache had.",
            n(&self.cached_tokens),
        );
        one("isobit:answers_begun_total", "counter", "Answers that were begun.", n(&self.begun));
        one("isobit:answers_done_total", "counter", "Answers that came to their end.", n(&self.done));
        one("isobit:answers_failed_total", "counter", "Answers that ended with an error.", n(&self.failed));
        one("isobit:answers_cancelled_total", "counter", "Answers whose client was gone.", n(&self.cancelled));
        one("isobit:requests_refused_total", "counter", "Requests that were refused.", n(&self.refused));
        self.first.write(&mut out, "isobit:time_to_first_token_seconds", "From request to first token.");
        self.between.write(&mut out, "isobit:time_between_tokens_seconds", "From token to token.");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_and_buckets_are_cumulative() {
        let m = Metrics::default();
        m.begin();
        m.first(100, 64, Duration::from_millis(20));
        m.next(Duration::from_millis(2));
        m.next(Duration::from_secs(60));
        m.end(Outcome::Done);
        let text = m.text(&Status { chunks: 8, free: 6, steps: 4, texts: 6, ..Status::default() });
        for line in [
            "llamacpp:prompt_tokens_total 36",
            "llamacpp:tokens_predicted_total 3",
            "llamacpp:n_busy_slots_per_decode 1.5",
            "llamacpp:kv_cache_usage_ratio 0.25",
            "isobit:cached_prompt_tokens_total 64",
            "isobit:time_to_first_token_seconds_bucket{le=\"0.01\"} 0",
            "isobit:time_to_first_token_seconds_bucket{le=\"0.025\"} 1",
            "isobit:time_between_tokens_seconds_bucket{le=\"30\"} 1",
            "isobit:time_between_tokens_seconds_bucket{le=\"+Inf\"} 2",
            "isobit:answers_done_total 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
