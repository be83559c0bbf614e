//! Throughput that is enforced: each way to provision it, and how much of it a second has.

use serde_json::{Value, json};

use crate::testing::{Sent, Server};

/// Who has the throughput, how it is asked for, and the request units that a second of it has. Where nobody asks, a
/// container has what the service gives it.
const TABLE: &str = "\
container  x-ms-offer-throughput          400                        400
container  x-ms-offer-throughput          1000                       1000
container  x-ms-cosmos-offer-autopilot-settings  {\"maxThroughput\":1000}  1000
database   x-ms-offer-throughput          500                        500
database   x-ms-cosmos-offer-autopilot-settings  {\"maxThroughput\":2000}  2000
nobody     x-ms-offer-throughput          -                          400
";

const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);

#[test]
fn what_is_beyond_the_throughput_waits() {
    for line in TABLE.lines() {
        let [owner, header, value, units] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let units: u32 = units.parse().unwrap();
        let server = Server::with(db::Options { throttle: true, ..db::Options::default() });
        let provisioned = |who: &str| if who == owner { vec![(header, value)] } else { Vec::new() };
        let make = |path: &str, who: &str, body: &Value| {
            let sent = server.send(("POST", path), &provisioned(who), body, None);
            assert_eq!(sent.status, 201, "{line}: {}", sent.body);
        };
        make("dbs", "database", &json!({"id": "d"}));
        let key = json!({"paths": ["/pk"], "version": 2});
        make("dbs/d/colls", "container", &json!({"id": "c", "partitionKey": key}));
        // A read that finds nothing costs 1.
        let read = || server.send(("GET", "dbs/d/colls/c/docs/x"), &[KEY], &Value::Null, None);
        let served = || (0..2 * units).take_while(|_| read().status == 404).count();
        server.clock.advance(1);
        assert_eq!(served() as u32, units, "{line}");
        // Who is told to wait is told how long, by the header that SDKs obey.
        let refused = read();
        assert_eq!((refused.status, refused.header("x-ms-substatus")), (429, "3200"), "{line}");
        let millis: u64 = refused.header("x-ms-retry-after-ms").parse().unwrap();
        assert!((1..1_000).contains(&millis), "{line}: {millis} ms");
        assert_eq!(write(&server).status, 429, "{line}");
        // Throughput is of the data: definitions can be read and changed meanwhile.
        let definition = server.send(("GET", "dbs/d/colls/c"), &[], &Value::Null, None);
        assert_eq!(definition.status, 200, "{line}");
        server.clock.advance(1);
        assert_eq!(write(&server).status, 201, "{line}");
    }
}

fn write(server: &Server) -> Sent {
    server.send(("POST", "dbs/d/colls/c/docs"), &[KEY], &json!({"id": "1", "pk": "a"}), None)
}
