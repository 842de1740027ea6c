// What an actor and a controller on the JavaScript SDK do, in Node.js and in a browser alike.
// `cogment` is the SDK, `endpoint` where the server is. Each function returns what it has seen, as JSON can say it.

class Bytes {
  constructor(data = new Uint8Array()) {
    this.data = data;
  }
  static encode(message) {
    return { finish: () => message.data };
  }
  static decode(data) {
    return new Bytes(Uint8Array.from(data));
  }
  static getTypeUrl() {
    return "type.googleapis.com/scenario.Bytes";
  }
}

const settings = {
  messageUrlMap: { [Bytes.getTypeUrl()]: Bytes },
  actorClasses: { player: { name: "player", actionSpace: Bytes, observationSpace: Bytes, config: Bytes } },
  environment: { config: Bytes },
  trial: { config: Bytes },
};

function within(promise, seconds, what) {
  return Promise.race([
    promise,
    new Promise((_resolve, reject) =>
      setTimeout(() => reject(new Error(`${what}: nothing within ${seconds} s`)), 1000 * seconds)
    ),
  ]);
}

// Start a trial, join it, play until `ticks` observations have come, tell the environment something at each, and end it.
async function play(cogment, endpoint, ticks) {
  const context = new cogment.Context(settings, "scenario");
  const seen = { observations: [], messages: [], rewards: 0, events: [], state: "" };
  const controller = context.getController(endpoint);
  context.registerActor(
    async (session) => {
      session.start();
      for await (const event of session.eventLoop()) {
        seen.events.push(event.type);
        seen.messages.push(...event.messages.map((message) => Array.from(message.data)));
        seen.rewards += event.rewards.length;
        if (event.observation) {
          seen.observations.push(Array.from(event.observation.data));
          if (event.type === cogment.EventType.ACTIVE) {
            session.sendMessage(new Bytes(Uint8Array.from([7, seen.observations.length])), ["env"]);
            session.doAction(new Bytes(Uint8Array.from([seen.observations.length])));
            if (seen.observations.length === ticks) {
              seen.terminated = controller.terminateTrial([session.getTrialId()]);
            }
          }
        }
      }
    },
    "web",
    "player"
  );
  const trialId = await within(controller.startTrial(new Bytes()), 20, "startTrial");
  await within(context.joinTrial(trialId, endpoint, "web"), 60, "joinTrial");
  seen.terminated = await seen.terminated;
  const infos = await within(controller.getTrialInfo([trialId]), 10, "getTrialInfo");
  seen.infos = infos.length;
  seen.final = seen.events.filter((type) => type === cogment.EventType.FINAL).length;
  return seen;
}

// Join a trial that does not exist, a few times; tell the error, and how long the quickest one took: a machine that is
// busy makes anything slow.
async function refused(cogment, endpoint, attempts) {
  const context = new cogment.Context(settings, "scenario");
  const found = { error: null, seconds: Infinity };
  for (let count = 0; count < attempts; count += 1) {
    const began = Date.now();
    try {
      await within(context.joinTrial("no such trial", endpoint, "web"), 10, "joinTrial");
      return { error: null };
    } catch (error) {
      found.error = error.message;
      found.seconds = Math.min(found.seconds, (Date.now() - began) / 1000);
    }
  }
  return found;
}

// Watch trials for so long, and start two near the end.
async function watch(cogment, endpoint, seconds) {
  const context = new cogment.Context(settings, "scenario");
  const controller = context.getController(endpoint);
  const seen = [];
  let ended = false;
  (async () => {
    for await (const info of controller.watchTrials([])) {
      seen.push([info.trialId, info.state]);
    }
    ended = true;
  })();
  await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
  const early = ended;
  const trialId = await within(controller.startTrial(new Bytes(), "watched"), 20, "startTrial");
  for (let count = 0; count < 100 && !seen.some(([id]) => id === trialId); count += 1) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await controller.terminateTrial([trialId], true);
  return { early, seen: seen.filter(([id]) => id === trialId).length };
}

globalThis.scenario = { play, refused, watch };
