// The server under test: where MongoDB clients find it, and its clock.

import http from "node:http";

const { ACCOUNT_PORT, MONGO_PORT, ACCOUNT_KEY } = process.env;

/** The connection string that the service's portal shows: TLS, the account's name and key, a replica set. */
export const uri =
  `mongodb://sidereal:${encodeURIComponent(ACCOUNT_KEY)}@localhost:${MONGO_PORT}/` +
  "?ssl=true&replicaSet=globaldb&retrywrites=false&maxIdleTimeMS=120000&appName=@sidereal@&tlsAllowInvalidCertificates=true";

/** The same without TLS and without the service's options. */
export const plain = `mongodb://sidereal:${encodeURIComponent(ACCOUNT_KEY)}@localhost:${MONGO_PORT}/`;

/** Moves the server's clock; answers when everything that has expired is gone. */
export function advance(seconds) {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${ACCOUNT_KEY}` };
    const options = { host: "localhost", port: ACCOUNT_PORT, method: "POST", path: "/_admin/clock", headers };
    const request = http.request(options, (response) => {
      response.resume();
      response.on("end", () => (response.statusCode === 200 ? resolve() : reject(new Error(`clock: ${response.statusCode}`))));
    });
    request.on("error", reject);
    request.end(JSON.stringify({ advance: seconds }));
  });
}
