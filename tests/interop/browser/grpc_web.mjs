// The official client of gRPC-Web against the conformance kit's services: `node grpc_web.mjs FOLDER PORT`.
// Its messages are made by hand: bytes in, bytes out.
import { createRequire } from "node:module";

const [, , folder, port] = process.argv;
const require = createRequire(`${folder}/node_modules/`);
globalThis.XMLHttpRequest = require("xhr2");
globalThis.window = globalThis.self = globalThis;
const { GrpcWebClientBase, MethodDescriptor, MethodType } = require("grpc-web");
const host = `http://127.0.0.1:${port}`;

// An Action with a tick, which is a zigzag varint, and an Observation is the same with a plain one.
const encode = (tick) => Uint8Array.from([0x08, ...varint(2 * tick)]);
const varint = (value) => (value < 128 ? [value] : [(value & 127) | 128, ...varint(value >> 7)]);
const decode = (data) => Array.from(data);

function method(name, type) {
  return new MethodDescriptor(`/trio_cogment.testing.Check/${name}`, type, Array, Array, encode, decode);
}

function unary(client, name, request, metadata = {}) {
  return new Promise((resolve) => {
    client.rpcCall(`${host}/trio_cogment.testing.Check/${name}`, request, metadata, method(name, MethodType.UNARY), (error, reply) =>
      resolve(error ? { code: error.code, message: error.message } : { reply })
    );
  });
}

function stream(client, name, request, metadata = {}, cancelAfter = Infinity) {
  return new Promise((resolve) => {
    const seen = { messages: 0 };
    const call = client.serverStreaming(
      `${host}/trio_cogment.testing.Check/${name}`, request, metadata, method(name, MethodType.SERVER_STREAMING)
    );
    call.on("data", () => {
      seen.messages += 1;
      if (seen.messages === cancelAfter) {
        call.cancel();
        resolve(seen);
      }
    });
    call.on("error", (error) => resolve({ ...seen, code: error.code, message: error.message }));
    call.on("status", (status) => (seen.status = status.code));
    call.on("end", () => resolve(seen));
  });
}

const result = {};
for (const format of ["text", "binary"]) {
  const client = new GrpcWebClientBase({ format });
  result[format] = {
    unary: await unary(client, "EchoOne", 5),
    missing: await unary(client, "Nowhere", 5),
    stream: await stream(client, "Count", 300),
    cut: await stream(client, "CutOff", 3),
  };
}
console.log(JSON.stringify(result));
process.exit(0);
