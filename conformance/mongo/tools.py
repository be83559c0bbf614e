"""mongodump and mongorestore against a server: what is dumped and restored is the same. A line a test: "ok NAME" or "failed NAME WHY"."""
import datetime
import subprocess
import sys
import tempfile

import bson
import pymongo

uri = sys.argv[1]
client = pymongo.MongoClient(uri)


def told(name):
    database = client[name]
    indexes = {each: database[each].index_information() for each in sorted(database.list_collection_names())}
    return indexes, list(database.things.find().sort("_id", 1)), list(database.expiring.find().sort("_id", 1))


def tool(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-500:]


def test(name, dump, restore):
    try:
        with tempfile.TemporaryDirectory() as place:
            tool("mongodump", f"--uri={uri}", "--db=dumped", *[word.format(place=place) for word in dump])
            tool("mongorestore", f"--uri={uri}", "--nsFrom=dumped.*", "--nsTo=restored.*", "--drop",
                 *[word.format(place=place) for word in restore])
        assert told("restored") == told("dumped"), told("restored")
        print("ok", name)
    except (AssertionError, subprocess.SubprocessError) as why:
        print("failed", name, str(why).replace("\n", " "))
    client.drop_database("restored")


things = client.dumped.things
things.insert_many({"_id": n, "n": n, "text": "x" * 200, "at": datetime.datetime(2024, 1, 1), "exact": bson.Decimal128("1.10")}
                   for n in range(3000))
things.create_index("n", unique=True)
things.create_index([("text", 1), ("n", -1)], name="both")
client.dumped.expiring.create_index("_ts", expireAfterSeconds=100)
client.dumped.expiring.insert_many([{"_id": 1, "ttl": 50}, {"_id": 2}])
client.dumped.create_collection("checked", validator={"n": {"$gt": 0}})
test("a folder", ["--out={place}"], ["{place}"])
test("a compressed archive", ["--archive={place}/a", "--gzip"], ["--archive={place}/a", "--gzip"])
