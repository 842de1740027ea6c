// @grpc/grpc-js against answers and requests of all kinds: `node grpc_js.mjs FOLDER call PORT NUMBER` calls so many methods, and prints
// the status of each; `node grpc_js.mjs FOLDER serve` prints its port, and ends with its standard input.
import { createRequire } from "node:module";

const [, , folder, what, port, number] = process.argv;
const require = createRequire(`${folder}/node_modules/`);
const grpc = require("@grpc/grpc-js");
const same = (value) => value;

// A message is bytes; those of an unknown wire type are none.
function parsed(data) {
  if (data.length && (data[0] & 7) > 5) throw new Error("no message");
  return data;
}

function named(code) {
  return grpc.status[code] ?? String(code);
}

function status(path) {
  const options = { "grpc.enable_retries": 0 };
  const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure(), options);
  return new Promise((resolve) => {
    const until = { deadline: Date.now() + 1000 };
    client.makeUnaryRequest(path, same, parsed, Buffer.alloc(0), new grpc.Metadata(), until, (error) => {
      client.close();
      resolve(error ? named(error.code) : "OK");
    });
  });
}

async function call() {
  const found = [];
  for (let at = 0; at < Number(number); at++) found.push(await status(`/rows/${at}`));
  console.log(JSON.stringify({ found }));
  process.exit(0);
}

function serve() {
  const method = (name) => ({
    path: `/rows.Rows/${name}`,
    requestStream: false,
    responseStream: false,
    requestDeserialize: parsed,
    responseSerialize: same,
  });
  const server = new grpc.Server();
  server.addService(
    { Echo: method("Echo"), Raise: method("Raise"), Wait: method("Wait") },
    {
      Echo: (call, answer) => answer(null, call.request),
      Raise: () => {
        throw new Error("swordfish");
      },
      Wait: () => {},
    }
  );
  server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (_, bound) => console.log(bound));
  process.stdin.on("end", () => process.exit(0)).resume();
}

await (what === "call" ? call() : serve());
