//! When an item is dead: the one place that decides (contract R02 to R18).
//!
//! A container has a [`TtlState`]: its default, and two marks that former settings left behind. With `now` it gives a
//! [`Horizon`], two instants that decide for every item of the container, for readers and for the purge alike, so the two
//! cannot disagree. Changing the default folds the old rule, as of now, into the marks: O(1), and what was dead
//! stays dead (R13, R15).

use serde_json::Value;

use crate::clock::Timestamp;

/// The largest legal ttl in seconds.
pub const TTL_SECS_MAX: u32 = 2_147_483_647;

/// An item's own ttl: what its root property `ttl` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ttl {
    /// Follows the container's default, whatever that becomes (R12).
    #[default]
    Absent,
    /// -1: never expires (R11).
    Never,
    /// Expires this many seconds after its last write.
    Secs(u32),
    /// Counts from a date that the item carries: this second, whenever it was written (R29).
    At(u32),
}

impl Ttl {
    /// What a number says where nothing is refused: other than -1 and 1..=2147483647 it has no effect (R27).
    pub fn lenient(secs: Option<i64>) -> Self {
        secs.and_then(Self::from_secs).unwrap_or_default()
    }

    /// What a date in an item says, in milliseconds: the first whole second that is not before it (R29). Dates that no clock
    /// of ours will reach are never.
    pub fn from_date(millis: i64) -> Self {
        let secs = millis.max(0).cast_unsigned().div_ceil(1_000);
        u32::try_from(secs).map_or(Self::Never, Self::At)
    }

    /// What an item says in a container whose time to live counts from a property of the item, in whole seconds since 1970: from there,
    /// whenever it was written. Without such a number it never expires, nor with an own ttl of -1; any other own ttl is illegal (R30).
    pub fn from_base(base: Option<&Value>, own: Self) -> Result<Self, IllegalTtl> {
        match own {
            Self::Never => Ok(Self::Never),
            Self::Secs(_) | Self::At(_) => Err(IllegalTtl),
            Self::Absent => Ok(base
                .and_then(whole_secs)
                .filter(|secs| *secs >= 0)
                .map_or(Self::Never, |secs| u32::try_from(secs).map_or(Self::Never, Self::At))),
        }
    }

    /// The instant of its own that an item last written at `ts` is judged by.
    pub fn instant(self, ts: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Absent | Self::Never => None,
            Self::Secs(secs) => Some(ts.plus(secs.into())),
            Self::At(at) => Some(Timestamp(at.into())),
        }
    }

    /// Reads the property `ttl`. `Err` means that the value is not a legal ttl: -1 or a whole number
    /// in 1..=2147483647, where 20.0 counts as 20 (R04).
    pub fn from_json(value: Option<&Value>) -> Result<Self, IllegalTtl> {
        match value {
            None => Ok(Self::Absent),
            Some(value) => whole_secs(value).and_then(Self::from_secs).ok_or(IllegalTtl),
        }
    }

    fn from_secs(secs: i64) -> Option<Self> {
        match secs {
            -1 => Some(Self::Never),
            secs => u32::try_from(secs).ok().filter(is_in_range).map(Self::Secs),
        }
    }
}

/// A `ttl` that is neither -1 nor a whole number in 1..=2147483647.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalTtl;

/// A container's default: the three states of R18.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultTtl {
    /// Nothing expires, own ttl or not.
    #[default]
    Off,
    /// -1: only items with an own ttl expire.
    NoDefault,
    /// Items without an own ttl expire this many seconds after their last write.
    Secs(u32),
    /// Items expire this many seconds after the date that they carry; those without one never (R29).
    AfterDate(u32),
}

impl DefaultTtl {
    /// Reads `defaultTtl`; absent and null are off (R02). The error names the legal range (R03).
    pub fn from_json(value: Option<&Value>) -> Result<Self, String> {
        let value = match value {
            None | Some(Value::Null) => return Ok(Self::Off),
            Some(value) => value,
        };
        match whole_secs(value).and_then(Ttl::from_secs) {
            Some(Ttl::Never) => Ok(Self::NoDefault),
            Some(Ttl::Secs(secs)) => Ok(Self::Secs(secs)),
            _ => Err(format!(
                "The input defaultTtl '{value}' is invalid. Ensure to provide a nonzero positive integer less than \
                 or equal to '{TTL_SECS_MAX}', or '-1' which means never expire, or leave it out to turn \
                 time to live off."
            )),
        }
    }

    /// The JSON value, if there is one to show.
    pub fn to_json(self) -> Option<Value> {
        match self {
            Self::Off => None,
            Self::NoDefault => Some(Value::from(-1)),
            Self::Secs(secs) | Self::AfterDate(secs) => Some(Value::from(secs)),
        }
    }

    /// Whether TTL is on.
    pub fn is_on(self) -> bool {
        self != Self::Off
    }

    /// Whether items expire by a date that they carry.
    fn is_dated(self) -> bool {
        matches!(self, Self::AfterDate(_))
    }
}

/// All that decides about expiry in a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TtlState {
    /// The rule in force.
    pub default: DefaultTtl,
    /// Items that follow the default and were last written at or before this are dead for ever.
    pub inherited_mark: Option<Timestamp>,
    /// Own expiries at or before this are dead for ever.
    pub own_mark: Option<Timestamp>,
}

impl TtlState {
    /// A new container's state.
    pub fn new(default: DefaultTtl) -> Self {
        Self { default, inherited_mark: None, own_mark: None }
    }

    /// What is dead at `now`.
    pub fn horizon(&self, now: Timestamp) -> Horizon {
        let (inherited, own) = match self.default {
            DefaultTtl::Off => (None, None),
            DefaultTtl::NoDefault => (None, Some(now)),
            DefaultTtl::Secs(secs) => (now.minus(secs.into()), Some(now)),
            DefaultTtl::AfterDate(secs) => (None, now.minus(secs.into())),
        };
        Horizon { inherited: inherited.max(self.inherited_mark), own: own.max(self.own_mark) }
    }

    /// The state after the default becomes `default` at `now`. What the old rule has expired by now stays so (R13): the marks say
    /// so, or it has been removed, where it must be ([`Self::must_settle`]).
    pub fn with_default(&self, default: DefaultTtl, now: Timestamp) -> Self {
        if self.default.is_dated() || default.is_dated() {
            return Self::new(default);
        }
        let horizon = self.horizon(now);
        Self { default, inherited_mark: horizon.inherited, own_mark: horizon.own }
    }

    /// Whether what is dead at `now` must be removed before the default becomes `default`. No mark can stand for it where items expire by
    /// a date, because one that is written later may carry a date that the mark covers (R29, R30).
    pub fn must_settle(&self, default: DefaultTtl, now: Timestamp) -> bool {
        let (old, new) = (self.horizon(now), Self::new(default).horizon(now));
        let is_relaxed = old.own > new.own || old.inherited > new.inherited;
        is_relaxed && (self.default.is_dated() || default.is_dated())
    }

    /// When an item will expire under the rule in force, if nothing changes (R07's matrix).
    pub fn expires_at(&self, ts: Timestamp, own: Ttl) -> Option<Timestamp> {
        match (self.default, own) {
            (DefaultTtl::Secs(secs), Ttl::Absent) => Some(ts.plus(secs.into())),
            _ => own.instant(ts).and_then(|instant| self.due(instant)),
        }
    }

    /// When an item with this instant of its own is due under the rule in force.
    pub fn due(&self, instant: Timestamp) -> Option<Timestamp> {
        match self.default {
            DefaultTtl::Off => None,
            DefaultTtl::NoDefault | DefaultTtl::Secs(_) => Some(instant),
            DefaultTtl::AfterDate(secs) => Some(instant.plus(secs.into())),
        }
    }
}

/// Two instants that decide what is dead, the same for readers and for the purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// Dead: items without an own ttl whose last write is at or before this.
    pub inherited: Option<Timestamp>,
    /// Dead: items with an own ttl that ends at or before this.
    pub own: Option<Timestamp>,
}

impl Horizon {
    /// Whether an item last written at `ts` with this own ttl exists.
    pub fn is_live(&self, ts: Timestamp, own: Ttl) -> bool {
        match own {
            Ttl::Never => true,
            Ttl::Absent => self.inherited.is_none_or(|horizon| ts > horizon),
            Ttl::Secs(_) | Ttl::At(_) => {
                own.instant(ts).is_none_or(|instant| self.is_live_with(instant))
            }
        }
    }

    /// What this or the other makes dead.
    pub fn or(self, other: Self) -> Self {
        Self { inherited: self.inherited.max(other.inherited), own: self.own.max(other.own) }
    }

    /// Whether an item with this instant of its own exists.
    pub fn is_live_with(&self, instant: Timestamp) -> bool {
        self.own.is_none_or(|horizon| instant > horizon)
    }
}

fn is_in_range(secs: &u32) -> bool {
    (1..=TTL_SECS_MAX).contains(secs)
}

/// A JSON number without a fraction.
fn whole_secs(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e12)?;
        Some(float as i64)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ttl_r04_legal_and_illegal_own_values() {
        let read = |value: Value| Ttl::from_json(Some(&value));
        assert_eq!(read(json!(-1)), Ok(Ttl::Never));
        assert_eq!(read(json!(20)), Ok(Ttl::Secs(20)));
        assert_eq!(read(json!(20.0)), Ok(Ttl::Secs(20)));
        assert_eq!(read(json!(-1.0)), Ok(Ttl::Never));
        assert_eq!(read(json!(2147483647)), Ok(Ttl::Secs(TTL_SECS_MAX)));
        for bad in [
            json!(0),
            json!(-10),
            json!(null),
            json!(1.5),
            json!("5"),
            json!(2147483648u64),
            json!(1e300),
        ] {
            assert_eq!(read(bad.clone()), Err(IllegalTtl), "{bad}");
        }
        assert_eq!(Ttl::from_json(None), Ok(Ttl::Absent));
    }

    #[test]
    fn ttl_r03_legal_and_illegal_defaults() {
        let read = |value: Value| DefaultTtl::from_json(Some(&value));
        assert_eq!(read(json!(null)), Ok(DefaultTtl::Off));
        assert_eq!(read(json!(-1)), Ok(DefaultTtl::NoDefault));
        assert_eq!(read(json!(5)), Ok(DefaultTtl::Secs(5)));
        for bad in [json!(0), json!(-2), json!(1.5), json!("5"), json!(true), json!(2147483648u64)]
        {
            let message = read(bad.clone()).unwrap_err();
            assert!(
                message.contains(&bad.to_string()) && message.contains("2147483647"),
                "{message}"
            );
        }
    }

    #[test]
    fn ttl_r27_what_is_not_a_ttl_has_no_effect() {
        assert_eq!(Ttl::lenient(Some(20)), Ttl::Secs(20));
        assert_eq!(Ttl::lenient(Some(-1)), Ttl::Never);
        for none in [None, Some(0), Some(-2), Some(2_147_483_648), Some(i64::MAX)] {
            assert_eq!(Ttl::lenient(none), Ttl::Absent, "{none:?}");
        }
    }

    #[test]
    fn ttl_r29_dates_count_from_their_own_second() {
        assert_eq!(Ttl::from_date(1_500), Ttl::At(2), "never before the date itself");
        assert_eq!(Ttl::from_date(-5), Ttl::At(0));
        assert_eq!(Ttl::from_date(i64::MAX), Ttl::Never);
        let state = TtlState::new(DefaultTtl::AfterDate(10));
        let live = |now, own| state.horizon(Timestamp(now)).is_live(Timestamp(500), own);
        assert!(live(109, Ttl::At(100)));
        assert!(!live(110, Ttl::At(100)), "dead exactly at date + seconds, whenever written");
        assert!(live(u64::MAX, Ttl::Never));
        assert_eq!(state.expires_at(Timestamp(500), Ttl::At(100)), Some(Timestamp(110)));
        // Items may be written later with dates that have expired before, so no mark is left: the dead must go first (R13).
        let longer = DefaultTtl::AfterDate(100);
        assert!(state.must_settle(longer, Timestamp(110)));
        assert!(state.must_settle(DefaultTtl::Off, Timestamp(110)));
        assert!(!state.must_settle(DefaultTtl::AfterDate(5), Timestamp(110)));
        assert_eq!(state.with_default(longer, Timestamp(110)), TtlState::new(longer));
        // Former rules that counted from the last write have left marks; they go likewise.
        let before = TtlState::new(DefaultTtl::Secs(5)).with_default(DefaultTtl::Off, Timestamp(9));
        assert!(before.must_settle(longer, Timestamp(9)));
        assert!(!TtlState::default().must_settle(longer, Timestamp(9)));
    }

    #[test]
    fn ttl_r30_counts_from_a_property() {
        let from = |base: Value, own| Ttl::from_base(Some(&base), own);
        assert_eq!(from(json!(50), Ttl::Absent), Ok(Ttl::At(50)));
        assert_eq!(from(json!(50.0), Ttl::Absent), Ok(Ttl::At(50)));
        assert_eq!(from(json!(50), Ttl::Never), Ok(Ttl::Never));
        assert_eq!(from(json!(50), Ttl::Secs(5)), Err(IllegalTtl));
        for never in [json!("50"), json!(-1), json!(1.5), json!(null), json!(1e11)] {
            assert_eq!(from(never, Ttl::Absent), Ok(Ttl::Never));
        }
        assert_eq!(Ttl::from_base(None, Ttl::Absent), Ok(Ttl::Never));
    }

    #[test]
    fn ttl_r07_the_matrix() {
        let (ts, now) = (Timestamp(1_000), Timestamp(1_010));
        let live = |default, own| TtlState::new(default).horizon(now).is_live(ts, own);
        for own in [Ttl::Absent, Ttl::Never, Ttl::Secs(5)] {
            assert!(live(DefaultTtl::Off, own));
        }
        assert!(live(DefaultTtl::NoDefault, Ttl::Absent));
        assert!(live(DefaultTtl::NoDefault, Ttl::Never));
        assert!(!live(DefaultTtl::NoDefault, Ttl::Secs(10)), "dead exactly at ts + ttl");
        assert!(live(DefaultTtl::NoDefault, Ttl::Secs(11)));
        assert!(!live(DefaultTtl::Secs(10), Ttl::Absent));
        assert!(live(DefaultTtl::Secs(11), Ttl::Absent));
        assert!(live(DefaultTtl::Secs(1), Ttl::Never));
        assert!(live(DefaultTtl::Secs(1), Ttl::Secs(11)));
        assert!(!live(DefaultTtl::Secs(100), Ttl::Secs(10)));
    }
}
