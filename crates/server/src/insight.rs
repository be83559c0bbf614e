//! `sidereal ttl`, `explain` and `top`: what the portal shows, for terminals. They ask a running server.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use cosmos::HttpDate;
use model::clock::Timestamp;
use serde_json::{Value, json};

use crate::config::{ContainerName, ItemName, Remote};
use crate::remote::Client;

/// How long to wait before asking again while the server counts for the first time.
const COUNTING_WAIT: Duration = Duration::from_millis(200);

/// How often `top` looks.
const TOP_WAIT: Duration = Duration::from_secs(2);

/// Prints what expires when, how far the purge is, and with `default` what that would do.
pub async fn ttl(remote: &Remote, name: &ContainerName, default: Option<&str>) -> Result<bool> {
    let mut client = Client::connect(remote).await?;
    let parts = ["_admin", "ttl", "dbs", &name.database, "colls", &name.container];
    let query = default.map_or(String::new(), |default| format!("default={default}"));
    let mut answer = client.get(&parts, &query).await?;
    while answer["uncounted"] != 0 {
        if std::io::stderr().is_terminal() {
            eprint!("\rcounting, {} items to go   ", count(&answer["uncounted"]));
        }
        tokio::time::sleep(COUNTING_WAIT).await;
        answer = client.get(&parts, &query).await?;
    }
    if std::io::stderr().is_terminal() {
        eprint!("\r{:40}\r", "");
    }
    print(&timeline(&answer))
}

/// Prints when and why an item expires.
pub async fn explain(remote: &Remote, name: &ItemName, key: Option<&str>) -> Result<bool> {
    let mut client = Client::connect(remote).await?;
    let ContainerName { database, container } = &name.container;
    let parts = ["_admin", "explain", "dbs", database, "colls", container, "docs", &name.id];
    let key = match key {
        Some(key) if key.trim_start().starts_with('[') => key.to_owned(),
        Some(key) => json!([key]).to_string(),
        None => json!([name.id]).to_string(),
    };
    let headers = [("x-ms-documentdb-partitionkey", ascii(&key))];
    let headers = [(headers[0].0, headers[0].1.as_str())];
    let answer = client.ask("GET", (&parts, ""), &headers, Bytes::new()).await;
    let answer = answer
        .with_context(|| format!("{} with partition key {key} (see --partition-key)", name.id))?;
    print(&explanation(&answer.json()?))
}

/// Prints a server's numbers, again and again on a terminal.
pub async fn top(remote: &Remote, once: bool) -> Result<bool> {
    let mut client = Client::connect(remote).await?;
    let mut before: Option<Value> = None;
    loop {
        let status = client.get(&["_admin", "status"], "").await?;
        let text = overview(&status, before.as_ref());
        if once || !std::io::stdout().is_terminal() {
            return print(&text);
        }
        // Home, the text, and nothing of what stood below it.
        print(&format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")))?;
        before = Some(status);
        tokio::time::sleep(TOP_WAIT).await;
    }
}

fn print(text: &str) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(true),
        result => result.map(|()| true).context("cannot write"),
    }
}

/// The answer of `/_admin/ttl/…` as text.
fn timeline(answer: &Value) -> String {
    let mut out = String::new();
    let now = answer["now"].as_u64().unwrap_or_default();
    let stored = &answer["stored"];
    let text = |name: &str| answer[name].as_str().unwrap_or_default();
    let mut line = |text: String| out.push_str(&(text + "\n"));
    line(format!(
        "{}/{}   {}   {} items, {}",
        text("database"),
        text("container"),
        rule(&answer["defaultTtl"]),
        count(&stored["items"]),
        bytes(&stored["bytes"])
    ));
    line(format!("now {}", HttpDate(Timestamp(now))));
    for (name, title, step, steps, unit) in [
        ("minutes", "next hour", 60, 60, "min"),
        ("hours", "next two days", 3_600, 48, "h"),
        ("days", "next thirty days", 86_400, 30, "d"),
    ] {
        let mut bars = vec![0; steps];
        let (mut by_default, mut by_own) = (0, 0);
        for found in answer[name].as_array().into_iter().flatten() {
            let until = found["until"].as_u64().unwrap_or_default();
            let place = (until.saturating_sub(now) / step).saturating_sub(1) as usize;
            if let Some(bar) = bars.get_mut(place) {
                *bar = found["items"].as_u64().unwrap_or_default();
            }
            by_default += found["byDefault"].as_u64().unwrap_or_default();
            by_own += found["byOwnTtl"].as_u64().unwrap_or_default();
        }
        let (a, b) = (group(by_default), group(by_own));
        line(match answer["ttlPropertyPath"].as_str() {
            None => format!("\n{title}: {a} by the default, {b} by their own ttl"),
            Some(path) => format!("\n{title}: {b} by the time at {path}"),
        });
        if by_default + by_own > 0 {
            line(histogram(&bars, unit));
        }
    }
    line(format!(
        "\nlater {}, never {}, expired and to be purged {}",
        count(&answer["later"]["items"]),
        count(&answer["never"]["items"]),
        count(&answer["expired"]["items"])
    ));
    let purge = &answer["purge"];
    let behind = match purge["itemsBehind"].as_u64() {
        Some(0) | None => "not behind".to_owned(),
        Some(items) => format!(
            "{} items and {} behind",
            group(items),
            duration(purge["secondsBehind"].as_u64().unwrap_or_default())
        ),
    };
    let budget = match purge["budget"].as_f64() {
        None => "no limit".to_owned(),
        Some(units) => format!("{units:.0} RU now"),
    };
    let charge = purge["requestCharge"].as_f64().unwrap_or_default();
    line(format!(
        "purge: {behind}; {} purged with {charge:.1} RU since the start; budget: {budget}",
        count(&purge["purged"])
    ));
    if let Some(run) = answer.get("dryRun") {
        let due = |name: &str| {
            format!("{} items ({})", count(&run[name]["items"]), bytes(&run[name]["bytes"]))
        };
        line(format!("\ndry run, {}:", rule(&run["defaultTtl"])));
        line(format!("  at once        {}", due("atOnce")));
        line(format!("  within an hour {}", due("hour")));
        line(format!("  within a day   {}", due("day")));
        line(format!("  later          {}", due("later")));
    }
    if answer["exact"] != true {
        line("\n(edges are shared out: off by less than one item in 15,000)".to_owned());
    }
    out
}

/// Bars of eight steps a row, and a scale below them.
fn histogram(bars: &[u64], unit: &str) -> String {
    const ROWS: u64 = 5;
    const STEPS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = bars.iter().copied().max().unwrap_or_default().max(1);
    let mut out = String::new();
    for row in (0..ROWS).rev() {
        let label = if row == ROWS - 1 { group(most) } else { String::new() };
        out.push_str(&format!("{label:>9} "));
        for bar in bars {
            // What is there is seen, however little it is.
            let eighths = (bar * ROWS * 8).div_ceil(most).saturating_sub(row * 8).min(8);
            out.push(STEPS[eighths as usize]);
        }
        out.push('\n');
    }
    let mut scale = format!("{:>9} ", "");
    for at in (0..bars.len()).step_by(10) {
        let mark = if at == 0 { "now".to_owned() } else { format!("+{at} {unit}") };
        scale.push_str(&format!("{mark:<10}"));
    }
    out.push_str(scale.trim_end());
    out
}

/// The answer of `/_admin/explain/…` as text.
fn explanation(answer: &Value) -> String {
    let mut out = String::new();
    let id = answer["id"].as_str().unwrap_or_default();
    let when = match (answer["expiresAt"].as_u64(), answer["expiresIn"].as_u64()) {
        (Some(at), Some(left)) => {
            format!("expires in {} at {} ({at})", duration(left), HttpDate(Timestamp(at)))
        }
        _ => "never expires".to_owned(),
    };
    let effective = match answer["effectiveTtl"].as_u64() {
        Some(secs) => format!("{secs} s, from {}", answer["source"].as_str().unwrap_or_default()),
        None => "none".to_owned(),
    };
    let written = answer["_ts"].as_u64().unwrap_or_default();
    writeln!(out, "{id} {when}\n  why            {}", answer["why"].as_str().unwrap_or_default())
        .and_then(|()| writeln!(out, "  effective ttl  {effective}"))
        .and_then(|()| writeln!(out, "  own ttl        {}", own(&answer["ttl"])))
        .and_then(|()| writeln!(out, "  container      {}", rule(&answer["defaultTtl"])))
        .and_then(|()| writeln!(out, "  last written   {}", HttpDate(Timestamp(written))))
        .expect("writing to memory cannot fail");
    out
}

/// The answer of `/_admin/status` as text; rates are since `before`.
fn overview(status: &Value, before: Option<&Value>) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let rate = |name: &str| match before {
        None => "–".to_owned(),
        Some(before) => {
            let secs = number(&status["uptimeSeconds"]) - number(&before["uptimeSeconds"]);
            format!("{:.0}/s", (number(&status[name]) - number(&before[name])) / secs.max(1.0))
        }
    };
    let text = |name: &str| status[name].as_str().unwrap_or_default();
    let mut out = format!(
        "Sidereal {} ({})   {}   up {}   {}\n",
        text("version"),
        text("engine"),
        text("status"),
        duration(status["uptimeSeconds"].as_u64().unwrap_or_default()),
        HttpDate(Timestamp(status["now"].as_u64().unwrap_or_default())),
    );
    out.push_str(&format!(
        "requests {} ({})   throttled {}   failed {}   request units {:.0} ({})\n",
        count(&status["requests"]),
        rate("requests"),
        count(&status["throttled"]),
        count(&status["failed"]),
        number(&status["requestCharge"]),
        rate("requestCharge"),
    ));
    out.push_str(&format!(
        "memory {}   disk {} (journals {})   connections {}\n\n",
        bytes(&status["memoryBytes"]),
        bytes(&status["diskBytes"]),
        bytes(&status["journalBytes"]),
        count(&status["connections"])
    ));
    out.push_str(&format!(
        "{:<36}{:>12}{:>11}{:>12}{:>11}{:>10}{:>10}\n",
        "CONTAINER", "ITEMS", "SIZE", "RU", "THROTTLED", "PURGED", "BEHIND"
    ));
    for one in status["containers"].as_array().into_iter().flatten() {
        let name = format!(
            "{}/{}",
            one["database"].as_str().unwrap_or_default(),
            one["container"].as_str().unwrap_or_default()
        );
        let behind = match one["itemsBehind"].as_u64() {
            Some(0) | None => "–".to_owned(),
            Some(_) => duration(one["secondsBehind"].as_u64().unwrap_or_default()),
        };
        let units = format!("{:.0}", number(&one["requestCharge"]));
        out.push_str(&format!(
            "{name:<36}{:>12}{:>11}{units:>12}{:>11}{:>10}{behind:>10}\n",
            count(&one["items"]),
            bytes(&one["bytes"]),
            count(&one["throttled"]),
            count(&one["purged"]),
        ));
    }
    out
}

fn rule(default: &Value) -> String {
    match default.as_i64() {
        None => "time to live off".to_owned(),
        Some(-1) => "time to live on, no default".to_owned(),
        Some(secs) => {
            format!("default {secs} s ({})", duration(secs.unsigned_abs()))
        }
    }
}

fn own(ttl: &Value) -> String {
    match ttl.as_i64() {
        None => "none: it follows the container".to_owned(),
        Some(-1) => "-1: never".to_owned(),
        Some(secs) => format!("{secs} s"),
    }
}

/// A number with its thousands apart.
pub(crate) fn group(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn count(value: &Value) -> String {
    group(value.as_u64().unwrap_or_default())
}

fn bytes(value: &Value) -> String {
    let mut number = value.as_f64().unwrap_or_default();
    let mut units = ["B", "KB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if number < 1_024.0 {
            break;
        }
        number /= 1_024.0;
        unit = next;
    }
    if unit == "B" { format!("{number:.0} B") } else { format!("{number:.1} {unit}") }
}

/// Seconds as people say them.
pub(crate) fn duration(secs: u64) -> String {
    match secs {
        0..100 => format!("{secs} s"),
        100..6_000 => format!("{} min", secs / 60),
        6_000..172_800 => format!("{} h {} min", secs / 3_600, secs / 60 % 60),
        _ => format!("{} d {} h", secs / 86_400, secs / 3_600 % 24),
    }
}

/// JSON for a header: what is not ASCII is escaped.
fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() {
            out.push(letter);
        } else {
            let mut units = [0; 2];
            letter.encode_utf16(&mut units).iter().for_each(|unit| {
                out.push_str(&format!("\\u{unit:04x}"));
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_shows_the_largest_whole_and_the_smallest_at_all() {
        let text = histogram(&[1_000, 500, 1, 0], "min");
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "    1,000 █   ");
        assert_eq!(rows[2], "          █▄  ");
        assert_eq!(rows[4], "          ██▁ ");
        assert_eq!(rows[5], "          now");
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(group(1_234_567), "1,234,567");
        assert_eq!(group(7), "7");
        assert_eq!(duration(90_061), "25 h 1 min");
        assert_eq!(bytes(&json!(1_536)), "1.5 KB");
        assert_eq!(ascii(r#"["ü😀"]"#), r#"["\u00fc\ud83d\ude00"]"#);
    }

    #[test]
    fn a_timeline_as_text() {
        let answer = json!({
            "database": "d", "container": "c", "now": 1_000_000, "defaultTtl": 60,
            "stored": {"items": 3, "bytes": 300},
            "expired": {"items": 0}, "later": {"items": 0}, "never": {"items": 1},
            "minutes": [{"items": 2, "byDefault": 1, "byOwnTtl": 1, "until": 1_000_060}],
            "hours": [], "days": [],
            "purge": {"itemsBehind": 0, "secondsBehind": 0, "purged": 5, "requestCharge": 30.0, "budget": null},
            "dryRun": {"defaultTtl": null, "atOnce": {"items": 0, "bytes": 0}, "hour": {"items": 0, "bytes": 0},
                       "day": {"items": 0, "bytes": 0}, "later": {"items": 0, "bytes": 0}},
            "exact": true,
        });
        let text = timeline(&answer);
        for part in [
            "d/c   default 60 s (60 s)   3 items, 300 B",
            "next hour: 1 by the default, 1 by their own ttl",
            "never 1",
            "purge: not behind; 5 purged with 30.0 RU since the start; budget: no limit",
            "dry run, time to live off:",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
