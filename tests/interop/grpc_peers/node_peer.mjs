// @grpc/grpc-js and @connectrpc/connect-node as peers: `node node_peer.mjs FOLDER grpc-js client PORT` plays its rows against a server and
// prints what came of each; `node node_peer.mjs FOLDER grpc-js server` prints its ports, as it is by default and with a hostile
// keepalive, and ends with its standard input. The same with `connect`; its server's second port is that with padding.
import http2 from "node:http2";
import { createRequire } from "node:module";

const [, , folder, peer, what, port] = process.argv;
const require = createRequire(`${folder}/node_modules/`);
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const PADDED = { paddingStrategy: http2.constants.PADDING_STRATEGY_MAX };
const SECONDS = 20;
const LARGE = 300_032;

function same(value) {
  return value;
}

// --- grpc-js ---

const KINDS = { Echo: [false, false], Chat: [true, true], First: [true, false], Refuse: [false, false], Wait: [false, false] };
const PUSHBACK = "grpc-retry-pushback-ms";

function definitionOf(name) {
  const [requestStream, responseStream] = KINDS[name];
  const codec = { requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same };
  return { path: `/peers.Peers/${name}`, requestStream, responseStream, ...codec };
}

/** Counts how often a call with each pushback has come. */
const attempts = new Map();
function attempt(pushback) {
  attempts.set(pushback, (attempts.get(pushback) ?? 0) + 1);
  return String(attempts.get(pushback));
}

function grpcJsServer() {
  const grpc = require("@grpc/grpc-js");
  const names = ["Echo", "Chat", "First", "Refuse"];
  const service = Object.fromEntries(names.map((name) => [name, definitionOf(name)]));
  const handlers = {
    Echo: (call, answer) => answer(null, call.request),
    Chat: (call) => call.on("data", (message) => call.write(message)).on("end", () => call.end()),
    First: (call, answer) => call.once("data", (message) => answer(null, message)),
    Refuse: (call, answer) => {
      const trailers = new grpc.Metadata();
      const pushback = call.request.subarray(2).toString();
      trailers.set(PUSHBACK, pushback);
      trailers.set("attempts", attempt(pushback));
      answer({ code: grpc.status.UNAVAILABLE, details: "full" }, null, trailers);
    },
  };
  const hostile = { "grpc.keepalive_time_ms": 10, "grpc.keepalive_timeout_ms": 5000 };
  return Promise.all(
    [{}, hostile].map((options) => {
      const server = new grpc.Server(options);
      server.addService(service, handlers);
      const bound = (resolve) => server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (_, at) => resolve(at));
      return new Promise(bound);
    })
  );
}

async function grpcJsClient() {
  const grpc = require("@grpc/grpc-js");
  const clientOf = (options) => new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure(), options);
  const until = () => ({ deadline: Date.now() + 1000 * SECONDS });
  const named = (error) => (error ? grpc.status[error.code] ?? String(error.code) : "OK");
  const path = (name) => `/peers.Peers/${name}`;
  const unary = (client, name, body, options = {}) =>
    new Promise((resolve) => {
      const answered = (error, reply) => resolve(error || reply.length === body.length ? named(error) : "another length");
      client.makeUnaryRequest(path(name), same, same, body, new grpc.Metadata(), { ...until(), ...options }, answered);
    });
  const chat = (client) =>
    new Promise((resolve) => {
      const call = client.makeBidiStreamRequest(path("Chat"), same, same, new grpc.Metadata(), until());
      let count = 0;
      call.on("data", () => (count += 1));
      call.on("error", () => {});
      call.on("status", (status) => resolve(status.code || count === 300 ? named(status.code && status) : `${count} messages`));
      for (let at = 0; at < 300; at++) call.write(Buffer.from([8, 2]));
      call.end();
    });
  const first = (client) =>
    new Promise((resolve) => {
      const answered = (error) => resolve(named(error));
      client.makeClientStreamRequest(path("First"), same, same, new grpc.Metadata(), until(), answered).write(Buffer.from([8, 2]));
    });
  const client = clientOf({});
  const found = {};
  const large = Buffer.concat([Buffer.from([0x1a, 0x80, 0xa8, 0x12]), Buffer.alloc(LARGE)]);
  found["one message each way"] = await unary(client, "Echo", Buffer.from([8, 2]));
  found["300 messages each way"] = await chat(client);
  found["300,000 bytes each way"] = await unary(client, "Echo", large);
  found["the answer before the last request"] = await first(client);
  found["the server is full"] = await unary(client, "Refuse", Buffer.alloc(0));
  await pause(1000);
  found["a call after a pause"] = await unary(client, "Echo", Buffer.alloc(0));
  client.close();
  const hostile = { "grpc.keepalive_time_ms": 10, "grpc.keepalive_timeout_ms": 5000, "grpc.keepalive_permit_without_calls": 1 };
  const pinging = clientOf(hostile);
  found["a PING every 10 ms"] = await unary(pinging, "Wait", Buffer.alloc(0), { deadline: Date.now() + 1000 * SECONDS });
  found["a call after that"] = await unary(pinging, "Echo", Buffer.alloc(0));
  return found;
}

// --- connect ---

function connectService() {
  const { create, createFileRegistry } = require("@bufbuild/protobuf");
  const { FileDescriptorProtoSchema, FileDescriptorSetSchema } = require("@bufbuild/protobuf/wkt");
  const field = (name, number, type) => ({ name, jsonName: name, number, type, label: 1 });
  const [BYTES, SINT64] = [12, 18];
  const method = ([name, [clientStreaming, serverStreaming]]) => {
    return { name, clientStreaming, serverStreaming, inputType: ".peers.Note", outputType: ".peers.Note" };
  };
  const file = create(FileDescriptorProtoSchema, {
    name: "peers.proto",
    package: "peers",
    syntax: "proto3",
    messageType: [{ name: "Note", field: [field("tick", 1, SINT64), field("content", 3, BYTES)] }],
    service: [{ name: "Peers", method: Object.entries(KINDS).map(method) }],
  });
  return createFileRegistry(create(FileDescriptorSetSchema, { file: [file] })).getService("peers.Peers");
}

async function connectClient() {
  const { Code, ConnectError, createClient } = require("@connectrpc/connect");
  const { createGrpcTransport, createGrpcWebTransport } = require("@connectrpc/connect-node");
  const service = connectService();
  const baseUrl = `http://127.0.0.1:${port}`;
  const named = (code) => Code[code].replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
  const status = async (call) => {
    try {
      return (await call()) ?? "OK";
    } catch (reason) {
      return named(ConnectError.from(reason).code).replace("CANCELED", "CANCELLED");
    }
  };
  async function* notes(count, more = async () => {}) {
    for (let tick = 0; tick < count; tick++) yield { tick: 1n };
    await more();
  }
  const until = { timeoutMs: 1000 * SECONDS };
  const large = { content: new Uint8Array(LARGE) };
  const rows = async (transport) => {
    const client = createClient(service, transport);
    const echoed = async () => {
      const reply = await client.echo(large, until);
      return reply.content.length === LARGE ? "OK" : "another length";
    };
    const chatted = async () => {
      let count = 0;
      for await (const _ of client.chat(notes(300), until)) count += 1;
      return count === 300 ? "OK" : `${count} messages`;
    };
    return {
      "one message each way": await status(() => client.echo({ tick: 1n }, until).then(() => "OK")),
      "300 messages each way": await status(chatted),
      "300,000 bytes each way": await status(echoed),
      "the answer before the last request": await status(() => client.first(notes(1, () => pause(3000)), until).then(() => "OK")),
      "the server is full": await status(() => client.refuse({}, until).then(() => "OK")),
    };
  };
  const found = {
    "connect, HTTP/2": await rows(createGrpcTransport({ baseUrl, httpVersion: "2" })),
    "connect, gRPC-Web, HTTP/2": await rows(createGrpcWebTransport({ baseUrl, httpVersion: "2" })),
    "connect, gRPC-Web, HTTP/1.1": await rows(createGrpcWebTransport({ baseUrl, httpVersion: "1.1" })),
  };
  const padding = await rows(createGrpcTransport({ baseUrl, httpVersion: "2", nodeOptions: PADDED }));
  found["connect, HTTP/2"]["300 messages, each padded"] = padding["300 messages each way"];
  found["connect, HTTP/2"]["the same, padded"] = padding["300,000 bytes each way"];
  const often = { baseUrl, httpVersion: "2", pingIntervalMs: 10, pingIdleConnection: true, pingTimeoutMs: 5000 };
  const pinging = createClient(service, createGrpcTransport(often));
  const ping = "a PING every 10 ms";
  found["connect, HTTP/2"][ping] = await status(() => pinging.wait({}, until).then(() => "OK"));
  found["connect, HTTP/2"]["a call after that"] = await status(() => pinging.echo({ tick: 1n }, until).then(() => "OK"));
  return found;
}

function connectServer() {
  const { Code, ConnectError } = require("@connectrpc/connect");
  const { connectNodeAdapter } = require("@connectrpc/connect-node");
  const routes = (router) =>
    router.service(connectService(), {
      echo: same,
      async *chat(requests) {
        for await (const request of requests) yield request;
      },
      async first(requests) {
        for await (const request of requests) return request;
      },
      refuse(request) {
        const pushback = new TextDecoder().decode(request.content);
        throw new ConnectError("full", Code.Unavailable, { [PUSHBACK]: pushback, attempts: attempt(pushback) });
      },
    });
  return Promise.all(
    [{}, PADDED].map((options) => {
      const server = http2.createServer(options, connectNodeAdapter({ routes }));
      return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port)));
    })
  );
}

const programs = {
  "grpc-js": { client: grpcJsClient, server: grpcJsServer },
  connect: { client: connectClient, server: connectServer },
};
const found = await programs[peer][what]();
if (what === "client") {
  console.log(JSON.stringify(found));
  process.exit(0);
}
console.log(found.join(" "));
process.stdin.on("end", () => process.exit(0)).resume();
