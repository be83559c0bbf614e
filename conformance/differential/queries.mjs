// Queries over fixed items, clause by clause and operator by operator. What single functions do is in the scripts of the query crate.

export const items = [
  { id: "1", pk: "a", name: "Ada", age: 36, height: 1.65, active: true, tags: ["x", "y"], address: { city: "London", zip: 1815 }, mixed: 1 },
  { id: "2", pk: "a", name: "Bob", age: 17, active: false, tags: [], address: { city: "Paris" }, mixed: "one", nothing: null },
  { id: "3", pk: "b", name: "cleo", age: 36, height: 1.8, tags: ["y", "z", "y"], mixed: null, parts: [{ n: 1, of: ["p"] }, { n: 2, of: ["q", "r"] }] },
  { id: "4", pk: "b", name: "Dé", age: -3, active: true, address: { city: "London" }, mixed: true, parts: [{ n: 3 }] },
  { id: "5", pk: "c", name: "", age: 2.5, tags: ["x", 1, null, { k: "v" }], mixed: [1, 2], empty: {} },
  { id: "6", pk: "c", mixed: { a: 1 }, text: "xy", "odd name": 1, order: 7, list: [[1, 2], [3]] },
];

const expressions = `
1 + 2 * 3 - 4 / 2 % 3
-(-5)
+5
~5
5 & 3
5 | 3
5 ^ 3
1 << 31
1 << 33
-1 >> 1
-1 >>> 1
-1 >>> 33
2147483648 | 0
1.9 & 1
"a" & 1
7 % 0
1 / 0
0 / 0
-7 % 3
5.5 % 2
"a" || "b" || "c"
"a" || 1
"a" || undefined
1 + "1"
1 + null
1 + true
1 + undefined
1 = 1.0
1 = "1"
null = null
null = undefined
undefined = undefined
undefined != 1
null != 1
1 != 1
1 != "1"
1 <> 2
true = true
true > false
null < 1
"a" < "b"
"a" < "B"
"a" < 1
"10" < "9"
[1] = [1.0]
[1] = [1, 2]
[1] != [2]
[1] < [2]
{"a": 1, "b": 2} = {"b": 2, "a": 1}
{"a": 1} = {"a": 1, "b": 2}
{"a": undefined} = {}
{} = []
{} < {}
true AND true
true AND false
true AND undefined
false AND undefined
undefined AND undefined
true AND 1
false AND 1
true OR undefined
false OR undefined
false OR 1
true OR 1
"a" AND true
null OR true
NOT true
NOT undefined
NOT 1
NOT null
NOT "a"
true ? 1 : 2
false ? 1 : 2
undefined ? 1 : 2
1 ? 1 : 2
null ? 1 : 2
"a" ? 1 : 2
true ? undefined : 2
null ?? 1
undefined ?? 1
undefined ?? undefined ?? 3
false ?? 1
5 BETWEEN 1 AND 10
5 BETWEEN 10 AND 1
"m" BETWEEN "a" AND "z"
5 BETWEEN "a" AND "z"
null BETWEEN 1 AND 2
undefined BETWEEN 1 AND 2
5 NOT BETWEEN 1 AND 3
1 IN (1, 2)
1 IN ("1", 2)
null IN (null)
undefined IN (1)
undefined IN (undefined)
1 IN (undefined, 1)
1 IN (undefined, 2)
[1] IN ([1])
{"a": 1} IN ({"a": 1})
1 NOT IN (2)
"abc" LIKE "a%"
"abc" LIKE "_b_"
"abc" LIKE "ABC"
"abc" LIKE "abc"
"abc" LIKE ""
"" LIKE ""
"a%c" LIKE "a!%c" ESCAPE "!"
"abc" LIKE "a!%c" ESCAPE "!"
"abc" LIKE "[a-c]bc"
"abc" NOT LIKE "x%"
1 LIKE "1"
undefined LIKE "a"
"a\\nb" LIKE "a%b"
[1, undefined, 2]
{"a": undefined, "b": 1}
[1, 2, 3][1]
[1, 2, 3][5]
[1, 2, 3][-1]
{"a": {"b": 5}}.a.b
{"a": 1}["a"]
{"a": 1}.x.y
"abc"[0]
"abc".length
[1].length
0x1F
1e3
.5
"\\u0041\\n\\t\\"'"
'it\\'s'
`.trim().split("\n");

const queries = `
SELECT * FROM c
SELECT * FROM root
SELECT c.id, c.age FROM c
SELECT c.id AS x, c.age y FROM c
SELECT c.none FROM c
SELECT c.id, c.id FROM c
SELECT c.address.city FROM c
SELECT c["odd name"], c.address["city"] FROM c
SELECT c.age + 1 FROM c
SELECT c.age + 1, c.name || "!" FROM c
SELECT VALUE c.age FROM c
SELECT VALUE {"n": c.name, "t": [c.age, c.none]} FROM c
SELECT VALUE c.tags[0] FROM c
SELECT VALUE c.parts[0].of[0] FROM c
SELECT VALUE c.list[0][1] FROM c
SELECT VALUE 1
SELECT 1
SELECT "a" AS x, 2 AS y
SELECT VALUE undefined
SELECT DISTINCT VALUE c.age FROM c
SELECT DISTINCT c.age FROM c
SELECT DISTINCT VALUE c.mixed FROM c
SELECT DISTINCT VALUE c.tags FROM c
SELECT TOP 2 c.id FROM c
SELECT TOP 0 c.id FROM c
SELECT DISTINCT TOP 2 VALUE c.age FROM c
SELECT c.id FROM c OFFSET 2 LIMIT 2
SELECT c.id FROM c OFFSET 5 LIMIT 10
SELECT c.id FROM c OFFSET 0 LIMIT 0
SELECT c.id FROM c AS c WHERE c.age = 36
SELECT x.id FROM c x WHERE x.age = 36
SELECT VALUE t FROM t IN c.tags
SELECT t FROM t IN c.tags
SELECT VALUE t FROM t IN c.text
SELECT * FROM c.address
SELECT VALUE a FROM c.address a
SELECT VALUE a.city FROM c.address AS a
SELECT VALUE c FROM c.address.city c
SELECT VALUE t FROM c JOIN t IN c.tags
SELECT c.id, t FROM c JOIN t IN c.tags WHERE t = "y"
SELECT c.id, p.n, o FROM c JOIN p IN c.parts JOIN o IN p.of
SELECT c.id, a, b FROM c JOIN a IN c.tags JOIN b IN c.tags WHERE c.id = "1"
SELECT c.id, y FROM c JOIN (SELECT VALUE t FROM t IN c.parts WHERE t.n > 1) AS y
SELECT VALUE s.n FROM (SELECT c.name AS n FROM c WHERE c.age > 0) AS s
SELECT VALUE p FROM p IN c.parts WHERE p.n > 1
SELECT c.id FROM c WHERE c.age > 17
SELECT c.id FROM c WHERE c.age >= 17 AND c.active = true
SELECT c.id FROM c WHERE c.age < 0 OR c.height > 1.7
SELECT c.id FROM c WHERE NOT c.active
SELECT c.id FROM c WHERE NOT (c.age > 17)
SELECT c.id FROM c WHERE c.active
SELECT c.id FROM c WHERE c.mixed
SELECT c.id FROM c WHERE c.none = undefined
SELECT c.id FROM c WHERE c.nothing = null
SELECT c.id FROM c WHERE c.mixed = null
SELECT c.id FROM c WHERE c.mixed != null
SELECT c.id FROM c WHERE c.mixed = [1, 2]
SELECT c.id FROM c WHERE c.mixed = {"a": 1}
SELECT c.id FROM c WHERE c.mixed > 0
SELECT c.id FROM c WHERE c.mixed < "z"
SELECT c.id FROM c WHERE c.address = {"city": "London"}
SELECT c.id FROM c WHERE c.age BETWEEN 2 AND 36
SELECT c.id FROM c WHERE c.name BETWEEN "A" AND "Z"
SELECT c.id FROM c WHERE c.age IN (36, 17)
SELECT c.id FROM c WHERE c.age NOT IN (36)
SELECT c.id FROM c WHERE c.name LIKE "%e%"
SELECT c.id FROM c WHERE c.tags[0] = "x"
SELECT c.id FROM c WHERE "x" = c.tags[0]
SELECT c.id FROM c WHERE ARRAY_CONTAINS(c.tags, "y")
SELECT c.id FROM c WHERE ARRAY_CONTAINS(c.tags, {"k": "v"})
SELECT c.id FROM c WHERE IS_DEFINED(c.height)
SELECT c.id FROM c WHERE NOT IS_DEFINED(c.height)
SELECT c.id FROM c WHERE IS_NULL(c.nothing)
SELECT c.id FROM c WHERE STARTSWITH(c.name, "A")
SELECT c.id FROM c WHERE c.age = @age
SELECT c.id FROM c WHERE c.address = @address
SELECT c.id FROM c WHERE ARRAY_CONTAINS(@ids, c.id)
SELECT VALUE @list FROM c WHERE c.id = "1"
SELECT VALUE @none FROM c
SELECT c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = "y")
SELECT c.id FROM c WHERE NOT EXISTS(SELECT VALUE t FROM t IN c.tags)
SELECT c.id, ARRAY(SELECT VALUE t FROM t IN c.tags WHERE t != "y") AS others FROM c
SELECT c.id, (SELECT VALUE COUNT(1) FROM t IN c.tags) AS n FROM c
SELECT c.id, EXISTS(SELECT VALUE p FROM p IN c.parts) AS has FROM c
SELECT VALUE c.id FROM c ORDER BY c.age
SELECT VALUE c.id FROM c ORDER BY c.age DESC
SELECT VALUE c.id FROM c ORDER BY c.name
SELECT VALUE c.name FROM c ORDER BY c.name DESC
SELECT VALUE c.id FROM c ORDER BY c.mixed
SELECT VALUE c.id FROM c ORDER BY c.address.city
SELECT VALUE c.id FROM c ORDER BY c.pk, c.age DESC
SELECT VALUE c.id FROM c ORDER BY c.pk DESC, c.age
SELECT VALUE c.id FROM c WHERE c.age > 0 ORDER BY c.age OFFSET 1 LIMIT 2
SELECT TOP 2 VALUE c.id FROM c ORDER BY c.age DESC
SELECT VALUE COUNT(1) FROM c
SELECT VALUE COUNT(c.age) FROM c
SELECT VALUE COUNT(1) FROM c WHERE c.age > 100
SELECT VALUE COUNT(1) FROM t IN c.tags
SELECT VALUE SUM(c.age) FROM c
SELECT VALUE SUM(c.mixed) FROM c
SELECT VALUE SUM(c.none) FROM c
SELECT VALUE AVG(c.age) FROM c
SELECT VALUE AVG(c.height) FROM c
SELECT VALUE MIN(c.age) FROM c
SELECT VALUE MAX(c.age) FROM c
SELECT VALUE MAX(c.name) FROM c
SELECT VALUE MIN(c.name) FROM c
SELECT VALUE MIN(c.none) FROM c
SELECT VALUE MAX(c.active) FROM c
SELECT COUNT(1) AS n, SUM(c.age) AS s, MIN(c.age) AS low, MAX(c.age) AS high FROM c
SELECT COUNT(1) FROM c
SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk
SELECT c.pk, SUM(c.age) AS s, AVG(c.age) AS a FROM c GROUP BY c.pk
SELECT c.active, COUNT(1) AS n FROM c GROUP BY c.active
SELECT VALUE c.pk FROM c GROUP BY c.pk
SELECT VALUE COUNT(1) FROM c GROUP BY c.pk
SELECT c.pk, c.active, MAX(c.age) AS m FROM c GROUP BY c.pk, c.active
SELECT LOWER(c.pk) AS p, COUNT(1) AS n FROM c GROUP BY LOWER(c.pk)
SELECT udf.none(1) FROM c
SELECT c.id FROM c -- a comment
SELECT c.id FROM c /* a comment */
select c.id from c where c.age = 36 order by c.id desc
SELECT
SELECT * FROM
SELECT FROM c
SELECT c.id FROM c WHERE
SELECT c.id, FROM c
SELECT x.id FROM c
SELECT c.id FROM c WHERE c.age = = 1
SELECT c.id FROM c ORDER BY
SELECT c.id FROM c LIMIT 1
SELECT c.id c.age FROM c
SELECT * FROM c JOIN t IN c.tags
SELECT COUNT(1), c.age FROM c
SELECT NOSUCH(1) FROM c
SELECT * FROM c GROUP BY c.pk
SELECT 'open FROM c
SELECT c.order FROM c
SELECT c.value FROM c
SELECT c.in FROM c
`.trim().split("\n");

export const parameters = [
  { name: "@age", value: 36 },
  { name: "@address", value: { city: "London" } },
  { name: "@ids", value: ["1", "3"] },
  { name: "@list", value: [1, "a", null] },
  { name: "@none", value: null },
];

/** Each with the name of its test. */
export const all = [
  ...expressions.map((text) => ({ name: text, query: `SELECT VALUE ${text} FROM c WHERE c.id = "1"` })),
  ...queries.map((text) => ({ name: text, query: text })),
];
