//! What time it is. The only file of the project that reads the machine's clock.
//!
//! A clock gives whole seconds that never decrease (R13), and a monotonic reading for latencies and
//! token buckets. A request takes `now` once and passes it down. [`VirtualClock`] is the clock of our tests and, with
//! `--clock virtual`, of our users' tests: it can be frozen, set forward and advanced, never turned back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whole seconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The instant `secs` later.
    pub fn plus(self, secs: u64) -> Self {
        Self(self.0.saturating_add(secs))
    }

    /// The instant `secs` earlier, or nothing if that lies before 1970.
    pub fn minus(self, secs: u64) -> Option<Self> {
        self.0.checked_sub(secs).map(Self)
    }

    /// Seconds since `earlier`; 0 if it lies later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The source of `now`.
pub trait Clock: Send + Sync {
    /// The current second. Never less than an earlier answer.
    fn now(&self) -> Timestamp;

    /// Makes every later `now` at least `floor`: what a former process has already handed out.
    fn raise_to(&self, floor: Timestamp);

    /// Time since some fixed instant, for token buckets. Moves with [`Clock::now`].
    fn elapsed(&self) -> Duration;

    /// Real time since the process began, for latencies; a virtual clock does not bend it.
    fn stopwatch(&self) -> Duration;

    /// The virtual clock's controls, if this is one.
    fn controls(&self) -> Option<&VirtualClock> {
        None
    }
}

/// The machine's clock, held where it is when it steps back.
#[derive(Debug)]
pub struct SystemClock {
    floor: AtomicU64,
    start: Instant,
}

impl SystemClock {
    /// Starts at the machine's time.
    pub fn new() -> Self {
        Self { floor: AtomicU64::new(0), start: machine_instant() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = machine_time().as_secs();
        Timestamp(self.floor.fetch_max(now, Ordering::AcqRel).max(now))
    }

    fn raise_to(&self, floor: Timestamp) {
        self.floor.fetch_max(floor.0, Ordering::AcqRel);
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn stopwatch(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The clock of a store that several servers share: it says what the store was last heard to say, and nothing of this machine's.
#[derive(Debug)]
pub struct StoreClock {
    heard: AtomicU64,
    start: Instant,
}

impl StoreClock {
    /// A clock that has heard nothing yet.
    pub fn new() -> Self {
        Self { heard: AtomicU64::new(0), start: machine_instant() }
    }
}

impl Default for StoreClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.heard.load(Ordering::Acquire))
    }

    fn raise_to(&self, floor: Timestamp) {
        self.heard.fetch_max(floor.0, Ordering::AcqRel);
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn stopwatch(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that its owner moves. It runs with the machine's clock until it is frozen, and is never turned back.
#[derive(Debug)]
pub struct VirtualClock {
    state: Mutex<VirtualState>,
    start: Instant,
}

#[derive(Debug)]
struct VirtualState {
    /// The reading at `since`.
    base: Duration,
    /// When the clock was last set, on the machine's monotonic clock; `None` while frozen.
    since: Option<Instant>,
    /// The first reading, from which [`Clock::elapsed`] counts.
    origin: Duration,
}

impl VirtualClock {
    /// Runs on from the machine's time.
    pub fn running() -> Self {
        Self::at(machine_time(), Some(machine_instant()))
    }

    /// Stands still at `now` until it is moved.
    pub fn frozen(now: Timestamp) -> Self {
        Self::at(Duration::from_secs(now.0), None)
    }

    fn at(base: Duration, since: Option<Instant>) -> Self {
        let state = VirtualState { base, since, origin: base };
        Self { state: Mutex::new(state), start: machine_instant() }
    }

    /// Whether the clock stands still.
    pub fn is_frozen(&self) -> bool {
        self.lock().since.is_none()
    }

    /// Stops the clock where it is.
    pub fn freeze(&self) {
        let mut state = self.lock();
        state.base = state.reading();
        state.since = None;
    }

    /// Lets the clock run on from where it stands.
    pub fn resume(&self) {
        let mut state = self.lock();
        state.base = state.reading();
        state.since = Some(machine_instant());
    }

    /// Moves the clock forward by `secs` and gives the new reading.
    pub fn advance(&self, secs: u64) -> Timestamp {
        let mut state = self.lock();
        let target = state.reading().saturating_add(Duration::from_secs(secs));
        state.move_to(target);
        Timestamp(target.as_secs())
    }

    /// Sets the clock to `target` unless that lies in its past, and says whether it did (R13).
    pub fn set_forward(&self, target: Timestamp) -> bool {
        let mut state = self.lock();
        let forward = target.0 >= state.reading().as_secs();
        if target.0 > state.reading().as_secs() {
            state.move_to(Duration::from_secs(target.0));
        }
        forward
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VirtualState> {
        self.state.lock().expect("nothing panics while it holds the clock")
    }
}

impl VirtualState {
    fn reading(&self) -> Duration {
        self.base + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn move_to(&mut self, target: Duration) {
        self.base = target;
        self.since = self.since.map(|_| machine_instant());
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.lock().reading().as_secs())
    }

    fn raise_to(&self, floor: Timestamp) {
        self.set_forward(floor);
    }

    fn elapsed(&self) -> Duration {
        let state = self.lock();
        state.reading().saturating_sub(state.origin)
    }

    fn stopwatch(&self) -> Duration {
        self.start.elapsed()
    }

    fn controls(&self) -> Option<&VirtualClock> {
        Some(self)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn machine_time() -> Duration {
    // A machine that believes it is before 1970 gets 1970: the floor then holds it there.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn machine_instant() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_r13_a_virtual_clock_never_goes_back() {
        let clock = VirtualClock::frozen(Timestamp(100));
        assert!(!clock.set_forward(Timestamp(99)));
        assert_eq!(clock.now(), Timestamp(100));
        assert!(clock.set_forward(Timestamp(100)));
        assert_eq!(clock.advance(5), Timestamp(105));
        clock.raise_to(Timestamp(50));
        assert_eq!(clock.now(), Timestamp(105));
        assert_eq!(clock.elapsed(), Duration::from_secs(5));
    }

    #[test]
    fn ttl_r13_a_system_clock_keeps_its_floor() {
        let clock = SystemClock::new();
        let future = clock.now().plus(1_000);
        clock.raise_to(future);
        assert_eq!(clock.now(), future);
    }
}
