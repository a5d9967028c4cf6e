import { expect, test } from "vitest";
import { WidgetHost, type WidgetModel } from "../../src/host/widget";

type Listener = Parameters<WidgetModel["on"]>[1];
type Sent = Parameters<WidgetModel["send"]>[0];

function opened(): { host: WidgetHost; sent: Sent[]; answer: Listener } {
  const sent: Sent[] = [], listeners: Listener[] = [];
  const host = new WidgetHost({ send: (content) => void sent.push(content), on: (_, listener) => void listeners.push(listener), off: () => {} });
  return { host, sent, answer: (content, buffers) => listeners[0]!(content, buffers) };
}

/** A reply within a larger message, as a notebook passes it. */
function reply(json: object): DataView {
  const header = new TextEncoder().encode(JSON.stringify({ __metadata__: { reply: JSON.stringify(json) } }));
  const whole = new Uint8Array(3 + 8 + header.length);
  new DataView(whole.buffer).setBigUint64(3, BigInt(header.length), true);
  whole.set(header, 11);
  return new DataView(whole.buffer, 3);
}

test("each question gets its own answer, in any order, or its error", async () => {
  const { host, sent, answer } = opened();
  const asked = [host.ask("about", {}), host.ask("about", {}), host.ask("about", {})];
  const [one, two, three] = sent.map(({ id }) => id);
  answer({ id: 1e300 }, [reply({ n: 0 })]);
  answer({ id: two! }, [reply({ n: 2 })]);
  answer({ id: one! }, [reply({ n: 1 })]);
  answer({ id: three!, error: "no" }, []);
  expect((await Promise.all(asked.slice(0, 2))).map(({ json }) => json)).toEqual([{ n: 1 }, { n: 2 }]);
  await expect(asked[2]).rejects.toThrow("no");
});

test("what nobody waits for any more is cancelled", async () => {
  const { host, sent, answer } = opened(), stop = new AbortController();
  const given = host.ask("about", {}, stop.signal), left = host.ask("about", {});
  stop.abort(new Error("given up"));
  await expect(given).rejects.toThrow("given up");
  host.close();
  await expect(left).rejects.toThrow("closed");
  expect(sent.slice(2)).toEqual(sent.slice(0, 2).map(({ id }) => ({ id, cancel: true })));
  answer({ id: sent[0]!.id }, [reply({})]);
});
