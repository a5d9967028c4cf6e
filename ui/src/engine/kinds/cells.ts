/** Number by number. */

import type { Op } from "../../core/protocol";
import { floats, type Floats } from "../../core/tensor";
import { activation, limited, setting, softCap } from "../functions";
import { fail, ofWeight, same, taken, weight, type Call, type Cell, type Given, type OpKind } from "../kind";
import type { Form } from "../forms";

export const CELLS = {
  copy: { inputs: [1, 1], compute: ({ x }) => x[0]!, needs: same, explain: taken, cellwise: true },
  scale: ofOne((op) => ((factor) => (x) => x * factor)(setting(op, "factor")), settled),
  soft_cap: ofOne((op) => ((cap) => (x) => softCap(x, cap))(setting(op, "cap")), settled),
  clamp: ofOne((op) => ((least, most) => (x) => limited(x, least, most))(setting(op, "least", -Infinity), setting(op, "most")), settled),
  activation: ofOne((op) => activation(op.how ?? ""), (cell, [of]) => ({ form: "function", name: cell.op.how ?? "", of: of!.term(), settings: {} })),
  add: ofTwo((a, b) => a + b, (_, given) => ({ form: "sum", terms: given.map((one) => one.term()) })),
  multiply: ofTwo((a, b) => a * b, (_, [a, b]) => ({ form: "product", left: a!.term(), right: b!.term() })),
  /** x times a learned factor for each component. */
  gain: {
    inputs: [1, 1],
    compute: (call) => {
      const { shape, data } = call.x[0]!, factors = weight(call, 0).data, out = floats(shape);
      for (let i = 0; i < data.length; i++) out.data[i] = data[i]! * factors[i % factors.length]!;
      return out;
    },
    needs: (cell) => [...same(cell), ofWeight(cell.op, 0, [null])],
    explain: ({ index }, [x, factor]) => ({ form: "product", left: x!.term(), right: factor!.term(index.at(-1)) }),
    cellwise: true,
  },
} satisfies Record<string, OpKind>;

function ofOne(of: (op: Op) => (x: number) => number, explain: OpKind["explain"]): OpKind {
  const compute = ({ op, x: [value] }: Call): Floats => {
    const f = of(op), { shape, data } = value!, out = floats(shape);
    for (let i = 0; i < data.length; i++) out.data[i] = f(data[i]!);
    return out;
  };
  return { inputs: [1, 1], compute, needs: same, explain, cellwise: true };
}

function ofTwo(f: (a: number, b: number) => number, explain: OpKind["explain"]): OpKind {
  const compute = ({ op, x }: Call): Floats => {
    const [a, b] = x as [Floats, Floats], out = floats(a.shape);
    if (a.data.length !== b.data.length) fail(op, `shapes [${a.shape}] and [${b.shape}] differ`);
    for (let i = 0; i < out.data.length; i++) out.data[i] = f(a.data[i]!, b.data[i]!);
    return out;
  };
  return { inputs: [2, 2], compute, needs: same, explain, cellwise: true };
}

/** A function with settings. */
function settled({ op }: Cell, [of]: Given[]): Form {
  return { form: "function", name: op.op, of: of!.term(), settings: op.by ?? {} };
}
