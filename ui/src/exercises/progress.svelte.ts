/** What the learner did, by set and exercise: kept by the browser where it lets us, and handed in as a file. */

import type { Answer, ExerciseSet } from "../judge/exercise";

interface SetState { version: string; clearhead?: string; answers: Record<string, Answer>; judged: Record<string, string> }
interface CourseState { format: string; sets: Record<string, SetState> }

const KEY = "clearhead.exercises";

export class Progress {
  #course: CourseState = $state()!;
  /** Whether the browser keeps nothing: the answers then last as long as the page. */
  refused = $state(false);

  /** `judge` judges what was answered on an earlier version of the page. */
  constructor(private readonly set: ExerciseSet, judge: (exercise: string, answer: Answer) => string | null) {
    this.#course = this.#latest();
    const own = this.#own;
    if (own.version !== set.version) {
      const judged = Object.entries(own.answers).map(([name, answer]) => [name, answer, judge(name, answer)] as const);
      this.#course.sets[set.name] = this.#empty();
      for (const [name, answer, said] of judged) if (said !== null) this.keep(name, answer, said);
    }
    this.#write();
  }

  get #own(): SetState {
    return this.#course.sets[this.set.name]!;
  }

  answer(exercise: string): Answer | null {
    return $state.snapshot(this.#own.answers[exercise]) as Answer | undefined ?? null;
  }

  judged(exercise: string): string | null {
    return this.#own.judged[exercise] ?? null;
  }

  get right(): number {
    return Object.values(this.#own.judged).filter((one) => one === "right").length;
  }

  keep(exercise: string, answer: Answer, judged: string): void {
    const own = $state.snapshot(this.#own) as SetState, course = this.#latest(), kept = course.sets[this.set.name]!;
    // Another page may have written since.
    const before = kept.version === own.version ? kept : own;
    course.sets[this.set.name] = {
      ...this.#empty(),
      answers: { ...own.answers, ...before.answers, [exercise]: answer },
      judged: { ...own.judged, ...before.judged, [exercise]: judged },
    };
    this.#course = course;
    this.#write();
  }

  /** The course's state as a file, with the sets of other pages that the browser keeps. */
  get file(): string {
    const course = this.#latest();
    course.sets[this.set.name] = $state.snapshot(this.#own) as SetState;
    return JSON.stringify(course, null, 1);
  }

  /** What the browser keeps now, or what this page knows. */
  #latest(): CourseState {
    const known = this.#course ? $state.snapshot(this.#course) as CourseState : { format: this.set.format, sets: {} };
    const kept = read(), course = kept?.format === this.set.format ? { ...kept, sets: { ...known.sets, ...kept.sets } } : known;
    course.sets[this.set.name] ??= this.#empty();
    return course;
  }

  #empty(): SetState {
    const { version, clearhead } = this.set;
    return { version, clearhead, answers: {}, judged: {} };
  }

  #write(): void {
    try {
      localStorage.setItem(KEY, JSON.stringify(this.#course));
      this.refused = false;
    } catch {
      this.refused = true;
    }
  }
}

const isTable = (x: unknown): x is Record<string, unknown> => typeof x === "object" && x !== null;

/** What the browser keeps, without what somebody broke by hand. */
function read(): CourseState | null {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "null");
    if (!isTable(found) || !isTable(found.sets)) return null;
    const sets = Object.entries(found.sets).filter(([, one]) => isTable(one) && isTable(one.answers) && isTable(one.judged));
    return { ...found, sets: Object.fromEntries(sets) } as unknown as CourseState;
  } catch {
    return null;
  }
}
