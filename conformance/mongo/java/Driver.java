// MongoDB's Java driver: ordinary work. A line a test: "ok NAME" or "failed NAME WHY".

import com.mongodb.MongoClient;
import com.mongodb.MongoClientURI;
import com.mongodb.MongoWriteException;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Accumulators;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.Updates;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.bson.Document;

public class Driver {
  interface Test {
    void run(MongoCollection<Document> things);
  }

  static MongoClient client;

  static void test(String name, Test test) {
    MongoCollection<Document> things = client.getDatabase("java").getCollection(name.replace(' ', '_'));
    try {
      test.run(things);
      System.out.println("ok " + name);
    } catch (Throwable why) {
      System.out.println("failed " + name + " " + why);
    }
    things.drop();
  }

  static void same(Object wanted, Object found) {
    if (!wanted.equals(found)) throw new AssertionError("wanted " + wanted + ", found " + found);
  }

  public static void main(String[] arguments) {
    client = new MongoClient(new MongoClientURI(arguments[0]));
    test("documents are written found changed and removed", things -> {
      List<Document> documents = new ArrayList<>();
      for (int n = 1; n <= 250; n++) documents.add(new Document("_id", n).append("n", n));
      things.insertMany(documents);
      int seen = 0;
      for (Document ignored : things.find().batchSize(50)) seen++;
      same(250, seen);
      same(150L, things.count(Filters.gt("n", 100)));
      same(2L, things.updateMany(Filters.lte("n", 2), Updates.inc("n", 1000)).getModifiedCount());
      same(new Document("_id", 5).append("n", 5), things.findOneAndDelete(Filters.eq("_id", 5)));
      Document sum = things.aggregate(Arrays.asList(Aggregates.group(null, Accumulators.sum("all", "$n")))).first();
      same(33370, sum.get("all"));
    });
    test("bulk writes and duplicates", things -> {
      things.insertOne(new Document("_id", 1));
      try {
        things.insertOne(new Document("_id", 1));
        throw new AssertionError("a second document with the same _id");
      } catch (MongoWriteException why) {
        same(11000, why.getCode());
      }
      same(1, things.bulkWrite(Arrays.asList(
          new InsertOneModel<>(new Document("_id", 2)),
          new DeleteOneModel<Document>(Filters.eq("_id", 9)),
          new UpdateOneModel<Document>(Filters.eq("_id", 1), Updates.set("a", true)))).getInsertedCount());
    });
    test("a TTL index is made and shown", things -> {
      same("_ts_1", things.createIndex(Indexes.ascending("_ts"), new IndexOptions().expireAfter(10L, TimeUnit.SECONDS)));
      List<Document> all = things.listIndexes().into(new ArrayList<>());
      same(10, ((Number) all.get(1).get("expireAfterSeconds")).intValue());
    });
    client.close();
  }
}
