// @connectrpc/connect-node's gRPC-Web against the conformance kit's services: `node connect_node.mjs FOLDER PORT` makes the same calls over
// HTTP/2 and over HTTP/1.1, and prints what came of them.
import { createRequire } from "node:module";

const [, , folder, port] = process.argv;
const require = createRequire(`${folder}/node_modules/`);
const { create, createFileRegistry } = require("@bufbuild/protobuf");
const { FileDescriptorProtoSchema, FileDescriptorSetSchema } = require("@bufbuild/protobuf/wkt");
const { Code, ConnectError, createClient } = require("@connectrpc/connect");
const { compressionGzip, createGrpcWebTransport } = require("@connectrpc/connect-node");

const [UINT64, BYTES, SINT64] = [4, 12, 18];
const message = (name, tick) => ({
  name,
  field: [
    { name: "tick_id", jsonName: "tickId", number: 1, type: tick, label: 1 },
    { name: "content", jsonName: "content", number: 3, type: BYTES, label: 1 },
  ],
});
const method = (name, clientStreaming, serverStreaming) => {
  return { name, clientStreaming, serverStreaming, inputType: ".trio_cogment.testing.Action", outputType: ".trio_cogment.testing.Observation" };
};
const file = create(FileDescriptorProtoSchema, {
  name: "check.proto",
  package: "trio_cogment.testing",
  syntax: "proto3",
  messageType: [message("Action", SINT64), message("Observation", UINT64)],
  service: [
    {
      name: "Check",
      method: [
        method("EchoOne", false, false),
        method("Fail", false, false),
        method("Wait", false, true),
        method("Count", false, true),
        method("CutOff", false, true),
        method("Sum", true, false),
        method("Echo", true, true),
        method("Missing", false, false),
      ],
    },
  ],
});
const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: [file] }));
const service = registry.getService("trio_cogment.testing.Check");

async function failing(call) {
  try {
    return { reply: await call() };
  } catch (reason) {
    const error = ConnectError.from(reason);
    return { code: Code[error.code], message: error.rawMessage, trailing: error.metadata.get("t-why") };
  }
}

async function streamed(messages) {
  let count = 0;
  const failed = await failing(async () => {
    for await (const _ of messages) count += 1;
  });
  return { count, ...failed };
}

async function* ticks(count) {
  for (let tick = 0; tick < count; tick++) yield { tickId: BigInt(tick) };
}

async function scenario(options) {
  const client = createClient(service, createGrpcWebTransport({ baseUrl: `http://127.0.0.1:${port}`, ...options }));
  const text = (content) => ({ content: new TextEncoder().encode(content) });
  const heard = {};
  const headers = { "x-a": "1" };
  const onHeader = (fields) => (heard.header = fields.get("x-a"));
  const onTrailer = (fields) => (heard.trailer = fields.get("t-end"));
  const large = await client.echoOne({ tickId: 7n, content: new Uint8Array(300_000) }, { headers, onHeader, onTrailer });
  return {
    unary: [Number(large.tickId), large.content.length, heard.header, heard.trailer],
    missing: await failing(() => client.missing({})),
    known: await failing(() => client.fail(text("known"))),
    bug: await failing(() => client.fail(text("bug"))),
    late: await streamed(client.wait({}, { timeoutMs: 100 })),
    stream: await streamed(client.count({ tickId: 300n })),
    cut: await streamed(client.cutOff({ tickId: 3n })),
    sum: Number((await client.sum(ticks(10))).tickId),
    echo: await streamed(client.echo(ticks(10))),
  };
}

const result = {};
for (const httpVersion of ["1.1", "2"]) result[httpVersion] = await scenario({ httpVersion });
result.compressed = await scenario({ httpVersion: "2", sendCompression: compressionGzip, compressMinBytes: 0 });
console.log(JSON.stringify(result));
process.exit(0);
