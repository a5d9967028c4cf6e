/** What the learner did, by set and exercise: kept by the browser where it lets us, and handed in as a file. */

import type { Answer, ExerciseSet } from "../judge/exercise";

interface SetState { version: string; answers: Record<string, Answer>; judged: Record<string, string> }
interface CourseState { format: string; sets: Record<string, SetState> }

const KEY = "clearhead.exercises";

export class Progress {
  #course: CourseState = $state()!;

  constructor(private readonly set: ExerciseSet) {
    const kept = read(), course = kept?.format === set.format ? kept : { format: set.format, sets: {} };
    const own = course.sets[set.name];
    // Answers to another version are answers to other exercises.
    if (own?.version !== set.version) course.sets[set.name] = { version: set.version, answers: {}, judged: {} };
    this.#course = course;
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
    this.#own.answers[exercise] = answer;
    this.#own.judged[exercise] = judged;
    try {
      localStorage.setItem(KEY, JSON.stringify(this.#course));
    } catch {
      // A page from a file may have no storage: the answers last as long as the page.
    }
  }

  /** The course's state as a file, with the sets of other pages that the browser keeps. */
  get file(): string {
    return JSON.stringify($state.snapshot(this.#course), null, 1);
  }
}

function read(): CourseState | null {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "null") as CourseState | null;
    return found && typeof found.sets === "object" ? found : null;
  } catch {
    return null;
  }
}
