/** Judges an answer by the values of the model: right, one of the known wrong ways, a slip in a number, or neither.
 *
 * The twin of lab/clearhead_lab/exercises/judging.py.
 */

import { indexed, parseAddress } from "../core/address";
import type { Tensor } from "../core/host";
import type { Edit, Plan, StackName } from "../core/protocol";
import { forward, numbersOf, rerun, type Pass } from "../engine/forward";
import { axesOf } from "../engine/taps";
import type { Answer, Exercise, Option } from "./exercise";
import { holds, type Runs, type Term, type Values } from "./language";

/** A small model, as an exported file holds it. */
export interface Subject {
  weights: ReadonlyMap<string, Tensor>;
  /** How the values come about: as trained, without the scale, with other positions. */
  plans: readonly { scale: boolean; positions: string | null; plan: Plan }[];
  /** The model's own kind of positions, for which a plan says null. */
  positions: string;
}

/** The largest number that an edit may set. */
const LARGEST = 1e4;

/** Judges the answers to one exercise. The passes without edits are computed once. */
export class Judge {
  #plain = new Map<Plan, Map<string, Pass>>();

  constructor(private readonly exercise: Exercise, private readonly model: Subject) {}

  /** `right`, the name of a wrong way or of a slip, or nothing, outside, fails, other. */
  judge(answer: Answer): string {
    const { exercise } = this, option = exercise.options[answer.choice ?? -1];
    if (isEmpty(answer)) return "nothing";
    if (!isInside(exercise, answer)) return "outside";
    let edited: Map<string, Pass>;
    try {
      edited = this.#passes(option ?? answer);
    } catch {
      return "fails";
    }
    const runs = this.#runs(edited, answer, option);
    const named: [string, Term][] = [["right", exercise.right], ...exercise.wrong.map(({ name, when }): [string, Term] => [name, when])];
    return named.find(([, term]) => holds(term, runs, "shown"))?.[0] ?? this.#slip(runs) ?? "other";
  }

  /** What a text says for which several answers may be meant: the one that is judged best. */
  best(answers: Answer[]): [Answer, string] {
    const { wrong, slips } = this.exercise, order = ["right", ...wrong.map(({ name }) => name), ...Object.keys(slips), "other"];
    const told = answers.map((one): [Answer, string] => [one, this.judge(one)]);
    return told.sort(([, a], [, b]) => order.indexOf(a) - order.indexOf(b))[0]!;
  }

  /** The slip without which the number is right. None where 0 is right, to which any number comes near. */
  #slip(runs: Runs): string | null {
    const isRight = (number: number): boolean => holds(this.exercise.right, { ...runs, answer: () => number }, "shown");
    const slips = Object.entries(this.exercise.slips);
    if (slips.length === 0 || isRight(0)) return null;
    return slips.find(([, factors]) => factors.some((one) => isRight(runs.answer() * one)))?.[0] ?? null;
  }

  #runs(edited: ReadonlyMap<string, Pass>, answer: Answer, option: Option | undefined): Runs {
    const plain = this.#passes({});
    return {
      groups: this.exercise.groups,
      value: (at, on, isPlain) => valueAt((isPlain ? plain : edited).get(on)!, at.replaceAll("@", option?.at ?? "")),
      ids: (stack, on) => this.exercise.inputs[on]![stack as StackName]!,
      answer: () => answer.number ?? answer.choice ?? 0,
    };
  }

  /** Every input with these edits. Throws if an edit does not fit, or if a number is not finite. */
  #passes({ edits = [], change = {} }: Pick<Answer, "edits" | "change">): Map<string, Pass> {
    const { scale = true, positions } = change, kind = positions === this.model.positions ? null : (positions ?? null);
    const plan = this.model.plans.find((one) => one.scale === scale && one.positions === kind)?.plan;
    if (!plan) throw new Error(`positions: expected some that this model can take, got ${positions}`);
    const plain = this.#plainOf(plan);
    if (edits.length === 0) return plain;
    return new Map([...plain].map(([name, pass]) => [name, rerun(pass, edits)]));
  }

  #plainOf(plan: Plan): Map<string, Pass> {
    let found = this.#plain.get(plan);
    if (!found) {
      const read = (ids: number[]): { id: number; type: number }[] => ids.map((id) => ({ id, type: 0 }));
      const passes = Object.entries(this.exercise.inputs).map(([name, { encoder, decoder }]): [string, Pass] => {
        const tokens = { ...(encoder ? { encoder: read(encoder) } : {}), ...(decoder ? { decoder: read(decoder) } : {}) };
        return [name, forward(plan, this.model.weights, numbersOf(plan.config, tokens))];
      });
      this.#plain.set(plan, (found = new Map(passes)));
    }
    return found;
  }
}

function valueAt(pass: Pass, at: string): Values {
  const { path, index } = parseAddress(at), value = pass.values.get(path), axes = value && axesOf(path, value.shape.length);
  if (!value || !axes) throw new Error(`${path}: expected an address of this model, got another`);
  return indexed(value, axes, index, at);
}

function isChanged({ scale, positions }: NonNullable<Answer["change"]>): boolean {
  return scale === false || (positions !== undefined && positions !== null);
}

export function isEmpty({ edits = [], change = {}, number, choice }: Answer): boolean {
  return edits.length === 0 && !isChanged(change) && number === undefined && choice === undefined;
}

/** Whether the answer is of the kind that the exercise asks for, and does only what it allows. */
function isInside(exercise: Exercise, { edits = [], change = {}, number, choice }: Answer): boolean {
  if (exercise.kind !== "edits") {
    const isOne = exercise.kind === "number" ? number !== undefined && choice === undefined : number === undefined && choice !== undefined;
    return isOne && edits.length === 0 && !isChanged(change) && (choice === undefined || choice < exercise.options.length);
  }
  if (number !== undefined || choice !== undefined) return false;
  const isMade = { scale: change.scale === false, positions: (change.positions ?? null) !== null };
  return (["scale", "positions"] as const).every((name) => !isMade[name] || exercise.changes.includes(name)) &&
    edits.every((edit) => isAllowed(exercise, edit));
}

function isAllowed(exercise: Exercise, edit: Edit): boolean {
  const values = Array.isArray(edit.value) ? edit.value : [edit.value ?? 0];
  try {
    const { path } = parseAddress(edit.at);
    return values.every((value) => Math.abs(value) <= LARGEST) && exercise.allows.some((one) => one.at === path && one.do.includes(edit.do));
  } catch {
    return false;
  }
}
