import { describe, expect, it } from "vitest";
import { asLists, layout, MOST, moved, prefixOf, type Node } from "../../src/views/generation/tree";

const node = (parent: number, step: number, more: Partial<Node> = {}): Node =>
  ({ parent, step, id: step, text: `t${step}`, log_prob: -1, score: -1, kept: true, final: false, ...more });

/** start - 1 - 3 (best), 1 - 4 dropped, 2 - 5 an end with a better score. */
const NODES = [
  node(-1, -1), node(0, 0, { score: -2 }), node(0, 0, { score: -1 }), node(1, 1), node(1, 1, { kept: false }), node(2, 1, { final: true }),
];
const BEST = [1, 3];

describe("layout", () => {
  const tree = layout(NODES, BEST);
  const at = (i: number): [number, number] => {
    const one = tree.placed.find((found) => found.i === i)!;
    return [one.column, one.row];
  };

  it("puts the answer on the first row, whatever the scores", () => {
    expect([0, 1, 3].map(at)).toEqual([[0, 0], [1, 0], [2, 0]]);
  });

  it("lets no line cross another: rows are in the order of the parents'", () => {
    for (const one of tree.placed) {
      for (const other of tree.placed) {
        if (one.column !== other.column || one.column === 0 || one.row >= other.row) continue;
        expect(at(one.node.parent)[1]).toBeLessThanOrEqual(at(other.node.parent)[1]);
      }
    }
  });

  it("counts columns, rows, and what is left out", () => {
    expect(tree).toMatchObject({ columns: 3, rows: 3, left: 0 });
  });

  it("draws only what was kept of a large tree", () => {
    const many = [...NODES, ...Array.from({ length: MOST }, () => node(1, 1, { kept: false }))];
    const large = layout(many, BEST);
    expect(large.placed.every((one) => one.node.kept)).toBe(true);
    expect(large.left).toBe(MOST + 1);
  });

  it("is one node for nothing written", () => {
    expect(layout([node(-1, -1)], [])).toMatchObject({ columns: 1, rows: 1 });
  });
});

describe("moved", () => {
  const tree = layout(NODES, BEST);

  it("goes to the parent, the likeliest child, and beside", () => {
    expect(moved(tree, 1, "ArrowRight")).toBe(3);
    expect(moved(tree, 3, "ArrowLeft")).toBe(1);
    expect(moved(tree, 3, "ArrowDown")).toBe(4);
    expect(moved(tree, 4, "ArrowUp")).toBe(3);
    expect(moved(tree, 4, "End")).toBe(3);
    expect(moved(tree, 4, "Home")).toBe(0);
  });

  it("stays at the ends", () => {
    expect([moved(tree, 0, "ArrowLeft"), moved(tree, 3, "ArrowRight"), moved(tree, 0, "ArrowUp"), moved(tree, 0, "x")]).toEqual([null, null, null, null]);
  });
});

it("lists every node once, the answer as the outermost path", () => {
  const items = asLists(layout(NODES, BEST));
  expect(items.map((item) => item.i)).toEqual([0, 1, 3]);
  expect(items[0]!.branches.map((path) => path.map((item) => item.i))).toEqual([[2, 5]]);
  expect(items[1]!.branches.map((path) => path.map((item) => item.i))).toEqual([[4]]);
});

describe("prefixOf", () => {
  it("is the text that the first tokens spell", () => {
    expect(prefixOf("le 3 mai", ["▁le", "▁3"])).toBe("le 3");
    expect(prefixOf("turkmène", ["▁t", "urk"])).toBe("turk");
    expect(prefixOf("5 17 3", ["5", "17"])).toBe("5 17");
    expect(prefixOf(" cat sat", ["▁cat"])).toBe(" cat");
  });

  it("passes over marks, and is empty for nothing", () => {
    expect(prefixOf("le chat", ["<bos>", "▁le", "▁", "<eos>"])).toBe("le");
    expect(prefixOf("le chat", [])).toBe("");
  });
});
