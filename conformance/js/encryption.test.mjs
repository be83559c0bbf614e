// Client-side encryption: the server keeps keys, policies and values that it cannot read.

import { before, test } from "node:test";
import assert from "node:assert/strict";
import { EncryptionAlgorithm, EncryptionKeyResolverName, EncryptionQueryBuilder, EncryptionType, KeyEncryptionAlgorithm } from "@azure/cosmos";
import { client, connect, database, failure, fresh } from "./server.mjs";

// A vault whose keys only add a byte to what they wrap.
const vault = {
  encryptionKeyResolverName: EncryptionKeyResolverName.AzureKeyVault,
  wrapKey: async (id, _, key) => Buffer.from([id.length, ...key]),
  unwrapKey: async (id, _, key) => {
    assert.equal(key[0], id.length, "wrapped by another key");
    return Buffer.from(key.subarray(1));
  },
};
const wrappedBy = (value) => ({
  type: EncryptionKeyResolverName.AzureKeyVault,
  name: "key",
  value,
  algorithm: KeyEncryptionAlgorithm.RSA_OAEP,
});

let db, container, plain;
before(async () => {
  const { id } = await database();
  db = connect({ clientEncryptionOptions: { keyEncryptionKeyResolver: vault } }).database(id);
  await db.createClientEncryptionKey("cek", EncryptionAlgorithm.AEAD_AES_256_CBC_HMAC_SHA256, wrappedBy("https://vault/one"));
  const path = (name, encryptionType) => ({
    path: name,
    clientEncryptionKeyId: "cek",
    encryptionType,
    encryptionAlgorithm: EncryptionAlgorithm.AEAD_AES_256_CBC_HMAC_SHA256,
  });
  const includedPaths = [path("/secret", EncryptionType.DETERMINISTIC), path("/deep", EncryptionType.RANDOMIZED)];
  ({ container } = await db.containers.create({
    id: fresh("encrypted"),
    partitionKey: { paths: ["/pk"] },
    clientEncryptionPolicy: { policyFormatVersion: 1, includedPaths },
  }));
  await container.initializeEncryption();
  plain = client.database(id).container(container.id);
});

test("encryption: the policy comes back as it was given", async () => {
  const { resource } = await container.read();
  assert.deepEqual(resource.clientEncryptionPolicy.includedPaths.map(({ path }) => path), ["/secret", "/deep"]);
});

test("encryption: an item is read as it was written, and stored so that the server cannot", async () => {
  const item = { id: "1", pk: "a", secret: "swordfish", deep: { n: [1, "two"] }, open: 5 };
  await container.items.create(item);
  const { resource } = await container.item("1", "a").read();
  assert.deepEqual([resource.secret, resource.deep, resource.open], [item.secret, item.deep, 5]);
  const stored = (await plain.item("1", "a").read()).resource;
  assert.ok(!JSON.stringify(stored).includes("swordfish"));
  assert.equal(stored.open, 5);
});

test("encryption: a query by an encrypted value", async () => {
  await container.items.create({ id: "2", pk: "a", secret: "open sesame", deep: {}, kind: "word" });
  await container.items.create({ id: "3", pk: "a", secret: "other", deep: {}, kind: "word" });
  const query = new EncryptionQueryBuilder("SELECT * FROM c WHERE c.secret = @secret AND c.kind = @kind");
  query.addParameter("@secret", "open sesame", "/secret");
  query.addUnencryptedParameter("@kind", "word", "/kind");
  const iterator = await container.items.getEncryptionQueryIterator(query);
  const { resources } = await iterator.fetchAll();
  assert.deepEqual(resources.map(({ id, secret }) => [id, secret]), [["2", "open sesame"]]);
});

test("encryption: keys are read and wrapped anew; there is one of a name", async () => {
  const { resource: before } = await db.readClientEncryptionKey("cek");
  assert.equal(before.keyWrapMetadata.value, "https://vault/one");
  await db.rewrapClientEncryptionKey("cek", wrappedBy("https://vault/second"));
  const { resource: after } = await db.readClientEncryptionKey("cek");
  assert.equal(after.keyWrapMetadata.value, "https://vault/second");
  const again = db.createClientEncryptionKey("cek", EncryptionAlgorithm.AEAD_AES_256_CBC_HMAC_SHA256, wrappedBy("https://vault/one"));
  assert.equal(await failure(again), 409);
  assert.equal(await failure(db.readClientEncryptionKey("nobody")), 404);
});
