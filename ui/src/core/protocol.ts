/** What a page may ask of its host, and what it gets: the same in every host.
 *
 * A question is JSON: `ask` names a row of `Questions`, the other fields are its arguments. A reply is one safetensors
 * file whose `__metadata__.reply` holds the JSON part. HTTP sends it as the body, a notebook as the buffer of a message;
 * in an exported file the engine in the page makes it. The Python side is clearhead/explorer/session.py.
 */

/** One forward pass: everything that decides its numbers. Equal requests have equal values. */
export interface RunRequest {
  text: string;
  /** Of an encoder-decoder: what the decoder reads after its start token. null: what the model writes itself, with
   *  these edits. Of an encoder: a second text, or null. */
  target: string | null;
  /** The tokens that the decoder reads instead of the target's: a model may write tokens that spell no text. */
  written?: number[];
  /** A data URL of a PNG or JPEG, or `example:3`: the input of a model that reads images. */
  image?: string | null;
  /** A checkpoint of the run; -1: the model that this one is compared with; null: the model that was opened. */
  step?: number | null;
  edits: Edit[];
  /** Another config over the same weights: what is absent stays as it was trained. */
  change?: Change;
}

export interface Change {
  /** false: scores are not divided by sqrt(d_k). */
  scale?: boolean;
  /** The position encoding of every stack. */
  positions?: string;
}

/** Replaces a value: `at` is an address with indices, such as `encoder.blocks.1.attn.z[h=2]`. */
export interface Edit {
  at: string;
  /** mean: the mean over the positions (axis t, or s); close: -inf, as a mask does; patch: from another run. */
  do: "zero" | "mean" | "set" | "scale" | "close" | "patch" | "add";
  /** set: a number for every cell, or a row of them; scale: the factor; add: how many times the direction of `of`. */
  value?: number | number[];
  /** patch: the run whose value at this address is taken. */
  from?: RunRequest;
  /** add: two sets of texts, whose direction is the difference of their means. */
  of?: TextSets;
}

export interface TextSets { positive: string[]; negative: string[] }

export type StackName = "encoder" | "decoder";

export interface Token { id: number; text: string; span: [number, number] | null; type: number }
export interface Fact { shape: number[]; axes: string; by_hand?: boolean; closed?: boolean }
export interface Mask { causal: boolean; window: number | null }

/** out = op(inputs, weights): clearhead/model/ops.py. Absent fields are empty. */
export interface Op {
  out: string;
  op: string;
  inputs?: string[];
  weights?: string[];
  by?: Record<string, number>;
  how?: string;
  numbers?: number[];
}

/** A stack of the config (clearhead/config), as far as a page reads it. */
export interface StackConfig {
  d_model: number; n_layers: number; n_heads: number; n_kv_heads: number | null; d_head: number | null; d_ff: number;
  norm: "layer" | "rms"; norm_place: "pre" | "post" | "sandwich" | "branch"; activation: string; gated: boolean;
  positions: { kind: string } & Record<string, unknown>;
  input: { kind: string; vocab_size?: number; patch_size?: number; image_size?: number; class_token?: boolean; n_registers?: number; convolutions?: { width: number; step: number; channels: number }[] } & Record<string, unknown>;
  attn_scale: number | null;
  [field: string]: unknown;
}
export interface ModelConfig {
  encoder: StackConfig | null; decoder: StackConfig | null; head: { kind: string; labels?: string[] | null } & Record<string, unknown>;
  share_embeddings?: boolean; [field: string]: unknown;
}

/** How the values of a network come about: of its config, or of a changed one. */
export interface Plan { config: ModelConfig; ops: Op[]; masks: Record<string, Mask> }

export interface Check { recompute_max_abs: number; recompute_max_relative: number; rows_sum_max_error: number }

/** One checkpoint of a training run. */
export interface Moment { step: number; loss: number | null; score: number | null }

// --- questions and replies ----------------------------------------------------------------------------------------

/** Every question by its name, with its arguments and its reply. `host.ask` takes its types from here. */
export interface Questions {
  about(asked: object): About;
  /** `later`: after all other questions. */
  run(asked: { run: RunRequest; later?: boolean }): RunReply;
  /** A tensor for each address, named as it was asked. Cells that an edit closed (masked) are NaN. */
  values(asked: { run: RunRequest; at: string[]; dtype: "float32" | "float16" }): ShapesReply;
  /** Parameters, whole (`encoder.blocks.0.attn.q.bias`) or one row of them (`encoder.blocks.0.attn.q.weight[i=3]`). */
  weights(asked: { step: number | null; at: string[] }): ShapesReply;
  check(asked: { run: RunRequest }): { check: Check };
  /** Why a head looks there: a score (at `….scores[h=,t=,s=]`) as a sum, its k largest pairs first. */
  qk(asked: { run: RunRequest; at: string; k: number }): QKReply;
  /** What one cell of attention (`….weights[h=,t=,s=]`) adds to a logit directly, by who wrote to its key position. */
  ov(asked: { run: RunRequest; at: string; logit: number; minus?: number }): OVReply;
  /** How much of the clean run's answer each clean state restores in the corrupt run: a tensor for each address in `at`,
   *  0 for the corrupt answer, 1 for the clean one, NaN where no position is aligned. `position` is of the clean run. */
  patching(asked: { clean: RunRequest; corrupt: RunRequest; answer: number; minus?: number; position: number; at: string[] }): PatchingReply;
  /** How a text is cut into tokens. */
  tokenize(asked: { text: string; target: boolean }): TokenizeReply;
  /** KL(plain || without), in nats, for each address; at one position, or the mean over all. How much the `logit` falls
   *  without it; of a model without logits 1 - cosine of its vectors. */
  effects(asked: { run: RunRequest; at: string[]; position?: number; logit?: number }): { effects: Record<string, number> };
  /** The facts of each head, by the address of its weights with [h=…]. For each A in `at` a tensor `A.norms` (h t s): the
   *  value-weighted norms ||w v W_O||. */
  statistics(asked: { run: RunRequest; at: string[] }): { heads: Record<string, HeadFacts> };
  /** Tensors `ids`, `probabilities` (l t k), `lse` (l t). */
  lens(asked: { run: RunRequest; k: number }): LensReply;
  /** What each part adds to a logit, or to its difference from another. */
  attribution(asked: { run: RunRequest; position: number; logit: number; minus?: number }): AttributionReply;
  /** Which nodes make a number of the answer, between a run and a corrupt one of as many tokens. */
  circuits(asked: CircuitsAsked): CircuitsReply;
  /** The edges with the largest scores, largest first; `steps` of integrated gradients, 0: at the run itself. */
  edges(asked: EdgesAsked & { most: number }): { edges: Edge[]; total: number };
  /** The number with all but this share of the edges corrupt. */
  faithfulness(asked: EdgesAsked & { share: number }): FaithfulnessReply;
  /** How the score of an edge comes about, and what patching it measures. */
  edge(asked: EdgesAsked & { writer: string; reader: string; terms: number }): EdgeReply;
  /** The texts of the data set that excite a part most. Asked again, the host looks at more texts: until `done`. */
  examples(asked: { at: string; towards?: { run: RunRequest; at: string }; top: number }): ExamplesReply;
  /** What changed from one checkpoint to another; -1: to the model that this one is compared with. Over
   *  `texts` of the data (0: none) also in heads, neurons and answers. */
  difference(asked: { step: number | null; other: number; texts: number }): DifferenceReply;
  /** The nearest rows of the token table by cosine: of a token, or of the vector at an address. */
  neighbours(asked: { run: RunRequest; stack: StackName; of: { id: number } | { at: string }; k: number }): NeighboursReply;
  /** The features that are most active at a position, and those in `also`. */
  features(asked: { run: RunRequest; at: string; position: number; k: number; also: number[] }): FeaturesReply;
  /** How long the direction of two sets of texts is, and on average the run's states at the address. */
  direction(asked: { run: RunRequest; at: string; of: TextSets }): { length: number; states: number };
  /** How the model goes on from the run's text (an encoder-decoder: writes its target). */
  generate(asked: { run: RunRequest; settings: GenerateSettings }): GenerateReply;
  /** Every text of the page in another language, by key. */
  texts(asked: { language: string }): { texts: Record<string, string> };
  /** A tensor `html` (uint8). */
  export(asked: { run: RunRequest; other?: RunRequest; stops?: RunRequest[]; state?: string }): { bytes: number; live: boolean };
}

export type Ask = keyof Questions;
export type Asked<A extends Ask> = Parameters<Questions[A]>[0];
export type Answered<A extends Ask> = Reply<ReturnType<Questions[A]>>;

/** Features that are attached to the model: their address, and the Python arguments that load them. */
export interface AttachedFeatures { address: string; writes: string; n: number; source: string }
export interface FeaturesReply { active: { feature: number; value: number; words: string[] }[]; count: number }

export interface About {
  name: string;
  kind: "encoder-decoder" | "decoder" | "encoder" | "image";
  family: string | null;
  parameters: number;
  /** Of the weights, and so of every number of a pass. */
  dtype: string;
  /** The largest number of tokens of each stack; null: no limit. */
  limits: Partial<Record<StackName, number | null>>;
  has_tokenizer: boolean;
  labels: string[] | null;
  /** The token that stands for a hidden one, of an encoder that fills it in. */
  mask?: string | null;
  step: number | null;
  plan: Plan;
  /** The run's checkpoints, oldest first. */
  history: Moment[];
  /** At most 400 of the logged training losses, evenly spaced, for the curve. */
  losses: [step: number, loss: number][];
  /** The name of the model that this one is compared with. */
  compared?: string | null;
  /** Of the repository that `name` is, if it is not its main one. */
  revision?: string | null;
  /** In an exported file: the text against which it holds circuits. */
  corrupt?: string;
  /** The run that the page opens with. */
  start: RunRequest;
  examples: RunRequest[];
  /** Questions this host answers. */
  answers: Ask[];
  /** Languages of the page's texts, English first: see `texts`. */
  languages: string[];
  features?: AttachedFeatures[];
  /** Changes that this model can take: `positions` lists kinds, its own first. */
  changes: { scale: boolean; positions: string[] };
}

/** Tensors: for each `….weights` address A with h t s: `A.u8` (uint8) and `A.max` (h t:
 *  float32, what 255 stands for); of a language head `output.ids`, `output.values` (t k, k <= 20) and `output.lse` (t);
 *  of another head `output.logits`. */
export interface RunReply {
  tokens: Partial<Record<StackName, Token[]>>;
  facts: Record<string, Fact>;
  /** The target that the decoder read, if any: `request.target`, or what the model wrote. */
  target: string | null;
  /** Present where the request changes the config. */
  plan?: Plan;
  /** Texts of the ids in `output.ids`. */
  words: Record<string, string>;
  /** Of image models: [rows, columns] of patches; the class token comes first. */
  grid?: [number, number];
  /** Notes for the reader, for example words that have no tokens. */
  notes: string[];
}

/** All terms, `rest` of the `left` other pairs and `others` among them, add up to the score. */
export interface QKReply {
  pairs: { query: string; key: string; value: number }[]; rest: number; left: number; others: Record<string, number>; score: number;
}

export interface OVReply { shares: Record<string, number>; contribution: number }

/** The smallest difference of two runs, in logits, of which parts are shares: as clearhead/analysis/metrics.py has it. */
export const LEAST = 0.1;

export interface PatchingReply {
  /** The aligned positions of each stack. */
  alignment: Partial<Record<StackName, [clean: number, corrupt: number][]>>;
  position: [clean: number, corrupt: number];
  /** The logit of the answer, minus that of the other, in each run. */
  clean: number;
  corrupt: number;
  /** The addresses of the rows of each part, the last block first. */
  sites: Record<"resid" | "attn" | "ffn" | "heads", string[]>;
}

/** The shape of each tensor. */
export interface ShapesReply { shapes: Record<string, number[]> }

export interface TokenizeReply {
  words: {
    text: string;
    span: [number, number];
    /** The pieces before any merge, then every merge in order: which pieces are left after it. */
    start: string[];
    merges: { left: string; right: string; rank: number; pieces: string[] }[];
    tokens: Token[];
  }[];
  unknown: string[];
}

export interface HeadFacts {
  kind: string; entropy: number; relative_entropy: number; previous: number; same: number; next: number; first: number;
  offset: number; offset_share: number; distance: number;
}

export interface LensReply { addresses: string[]; words: Record<string, string> }

export interface AttributionReply { shares: Record<string, number>; logit: number }

export interface CircuitsAsked { run: RunRequest; corrupt: RunRequest; answer?: number; minus?: number; position?: number; features?: boolean }
export interface EdgesAsked extends CircuitsAsked { steps: number }
/** The number: logit[answer] - logit[minus] at a position; without logits, how far the vector lies along its shift. */
export interface CircuitsReply {
  clean: number; corrupt: number; answer: number | null; minus: number | null; position: number | null;
  /** By the address of what a part writes: about what the number loses if it is corrupt, by position. */
  nodes: Record<string, number[]>;
  words: Record<string, string>;
}
/** Of the graph: `writer` such as `encoder.blocks.0.attn.heads[h=2]`, `reader` such as `….attn.q[h=0]`. */
export interface Edge { writer: string; reader: string; score: number }
export interface FaithfulnessReply { share: number; n_edges: number; metric: number; faithfulness: number | null }
export interface EdgeReply {
  score: number; exact: number; positions: number[];
  terms: { t: number; d: number; change: number; gradient: number; product: number }[];
  n_terms: number;
}

type Interval = [low: number, high: number];
/** The largest first: see clearhead/analysis/difference.py and clearhead/capture/. */
export interface DifferenceReply {
  tensors: { name: string; shape: number[]; norm: number; relative: number; singular: number[]; rank: number | null; effective_rank: number | null }[];
  differing: number;
  n_tensors: number;
  n_texts: number;
  heads: PartChange[];
  neurons: PartChange[];
  answers: {
    changed: { value: number; interval: Interval };
    kl: { value: number; interval: Interval };
    scores: Record<string, { first: number; second: number; difference: number; interval: Interval; p: number }>;
    n_changed_texts: number;
    texts: { text: string | string[]; position: number | null; first: string; second: string; kl: number }[];
  } | null;
}
export interface PartChange {
  site: string; own: number; interval: Interval; moved: number; total: number; before: number;
  effect: { first: number; second: number; interval: Interval } | null;
}

export interface NeighboursReply { ids: number[]; cosines: number[]; words: Record<string, string> }

export interface ExamplesReply {
  /** What the strength of a token is: a number, the norm of a vector, its length along the direction, or the largest
   *  weight on a token that is neither the first nor a special one. */
  measure: "value" | "norm" | "towards" | "weight";
  /** Texts that have been looked at, of how many. */
  read: number;
  of: number;
  done: boolean;
  /** Which texts: those that the host was given, the run's validation or training data, or its last samples. */
  from: "given" | "valid" | "train" | "samples";
  rows: ExampleRow[];
}
/** The tokens are those of the stack that the address names, with the spaces before them; `key` is the token that a weight is on. */
export interface ExampleRow {
  text: string; target: string | null; value: number; position: number; key: number | null; tokens: string[]; values: number[];
}

export interface GenerateSettings {
  max_new_tokens: number; beams: number; temperature: number; top_k: number | null; top_p: number | null; seed: number;
  length_penalty?: number;
}
export interface GenerateReply {
  text: string;
  /** A tree: a node a token written, whether kept or dropped; node 0 is the start. */
  nodes: { parent: number; id: number; text: string; log_prob: number; score: number; kept: boolean; final: boolean; step: number }[];
  /** Node indices of the answer, first token first. */
  best: number[];
  /** For each token of the answer, the likeliest at that step: [id, probability] over the whole vocabulary. */
  steps: { top: [number, number][] }[];
  words: Record<string, string>;
  notes: string[];
}

/** The reply to a question that failed. */
export interface Failure { error: string }

export type Numbers = Float32Array | Uint8Array | Int32Array;
export interface Tensor {
  shape: number[];
  data: Numbers;
  /** One row, where all numbers at once are many. */
  row?(i: number): Numbers;
}

export interface Reply<T> { json: T; tensors: Map<string, Tensor> }

/** Answers questions. Rejects with an Error whose message is one line for the reader. */
export interface Host {
  /** Called when the host no longer answers this page. */
  onlost?: (() => void) | null;
  ask<A extends Ask>(ask: A, asked: Asked<A>, signal?: AbortSignal): Promise<Answered<A>>;
}
