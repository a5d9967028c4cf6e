/** Generated from clearhead/explorer by `python -m tools.protocol`: the questions of a page, and the replies.
 *
 * A question is JSON: `ask` names a row of `Questions`, the other fields are its arguments. A reply is one safetensors
 * file whose `__metadata__.reply` holds the JSON part. core/host.ts says who answers.
 */

/** Every question by its name, with its arguments and its reply. */
export interface Questions {
  /** Part of a question. No value is converted: the number 1 is neither the text "1" nor true. */
  about(asked: object): About;
  /** Asks about one forward pass. */
  run(asked: OfRun): RunReply;
  /** Asks for recorded numbers, whole or in part. */
  values(asked: ValuesQuestion): ShapesReply;
  /** Asks for parameters, whole or one row. */
  weights(asked: WeightsQuestion): ShapesReply;
  /** Asks why a head looks there: for the largest pairs of the score at `at`. */
  qk(asked: QKQuestion): QKReply;
  /** Asks what the cell `at` of attention weights adds to a logit. */
  ov(asked: OVQuestion): OVReply;
  /** Asks how much of the clean run's answer each state at the addresses `at` restores in the corrupt run. */
  patching(asked: PatchingQuestion): PatchingReply;
  /** Asks about one forward pass. */
  check(asked: OfRun): CheckReply;
  /** Asks for the page's texts in a language. */
  texts(asked: TextsQuestion): TextsReply;
  /** Asks how a text is cut. */
  tokenize(asked: TokenizeQuestion): TokenizeReply;
  /** Asks how much the answer changes without each part. */
  effects(asked: EffectsQuestion): EffectsReply;
  /** Asks what each head does. `at` lists attention weights whose value-weighted norms are wanted. */
  statistics(asked: StatisticsQuestion): StatisticsReply;
  /** Asks what the network would say after each block, at all positions or at one. */
  lens(asked: LensQuestion): LensReply;
  /** Asks how much of one answer each part of the network carries. */
  overview(asked: OverviewQuestion): OverviewReply;
  /** Asks what each part adds to a logit. */
  attribution(asked: AttributionQuestion): AttributionReply;
  /** Asks for the score of every node: about how much the number falls if it sees the corrupt run. */
  circuits(asked: CircuitsQuestion): CircuitsReply;
  /** Asks for the edges with the largest scores. */
  edges(asked: EdgesQuestion): EdgesReply;
  /** Asks for the number with all but a share of the edges corrupt. */
  faithfulness(asked: FaithfulnessQuestion): FaithfulnessReply;
  /** Asks how an edge's score comes about, and for what patching that edge measures. */
  edge(asked: EdgeQuestion): EdgeReply;
  /** Asks what changed from one model to another: with texts, also in heads, neurons and answers. */
  difference(asked: DifferenceQuestion): DifferenceReply;
  /** Asks for the texts that excite a part most. Asked again, it looks at more of them. */
  examples(asked: ExamplesQuestion): ExamplesReply;
  /** Asks for texts that differ from the run's in one word, and whether they have its answer. */
  propose(asked: ProposalQuestion): ProposalReply;
  /** Asks for effects over a set of prompts (clearhead/capture/prompts.py). */
  prompts(asked: PromptsQuestion): PromptsReply;
  /** Asks for the rows of the token table that are nearest to a vector. */
  neighbours(asked: NeighboursQuestion): NeighboursReply;
  /** Asks for the most active features of a position. `also` are shown even if they are not active. */
  features(asked: FeaturesQuestion): FeaturesReply;
  /** Asks for the difference of the means of two sets of texts at an address. */
  direction(asked: DirectionQuestion): DirectionReply;
  /** Asks for the model's continuation of the run's text, or for the target that it writes. */
  generate(asked: GenerateQuestion): GenerateReply;
  /** Asks for the page as one file, which begins with `run` and, if it is given, `other` beside it. */
  export(asked: ExportQuestion): ExportReply;
}

export type StackName = "encoder" | "decoder";

/** The model, and everything else that a page needs to know first. */
export interface About {
  name: string; kind: "encoder-decoder" | "decoder" | "encoder" | "image"; family: string | null; parameters: number;
  /** Of the weights, and so of every number of a pass. */
  dtype: string;
  /** The largest number of tokens of each stack; null: no limit. */
  limits: Partial<Record<StackName, number | null>>;
  has_tokenizer: boolean; labels: string[] | null;
  /** The mask token of an encoder that predicts masked tokens. */
  mask: string | null;
  step: number | null; plan: Plan;
  /** The run's checkpoints, oldest first. */
  history: Checkpoint[];
  /** At most 400 of the logged training losses, evenly spaced: step and loss. */
  losses: [number, number][];
  /** The name of the model that this one is compared with. */
  compared: string | null;
  /** Of ambiguous words that a translator may read. */
  senses: Sense[];
  /** What is known of the model beyond its head: the language that a translator writes, or sort. */
  task: string | null;
  /** The revision of the repository `name`, unless it is the main one. */
  revision: string | null;
  /** In an exported file: the text against which it holds circuits. */
  corrupt?: string;
  /** In an exported file that reads only the texts it holds: the command that opens the model. */
  fixed?: string;
  /** The run that the page opens with. */
  start: RunRequest;
  examples: RunRequest[];
  /** The questions that this host answers. */
  answers: string[];
  /** Languages of the page's texts, English first: see `texts`. */
  languages: string[];
  features: AttachedFeatures[]; changes: Changes;
  /** The places of other packages. */
  places: PlaceAbout[];
}

/** How the values of a network are computed: of its config, or of a changed one. */
export interface Plan {
  config: ModelConfig; ops: Op[]; masks: Record<string, Mask>;
}

/** A whole network: encoder, decoder or both, and a head. */
export interface ModelConfig {
  encoder: StackConfig | null; decoder: StackConfig | null;
  head: { kind: "language" | "classification" | "tagging" | "span" | "vector" | "none"; tied?: boolean; bias?: boolean; transform?: boolean; transform_bias?: boolean; transform_alone?: boolean; width?: number | null; scale?: number | null; soft_cap?: number | null; n_labels?: number; labels?: string[]; pool?: "first" | "last" | "mean" | "first_and_mean" | "attention"; patches_only?: boolean; distilled?: boolean; pooler?: boolean; pooler_activation?: "tanh" | "relu" | "gelu"; pools_last?: boolean; dropout?: number; problem_type?: "single_label_classification" | "multi_label_classification" | "regression" | null; transform_norm?: boolean; blank?: number | null; norm?: boolean; fills?: boolean };
  pictures: PictureInput | null; share_embeddings: boolean; init: Init;
}

/** A stack of equal blocks: attention, (cross-attention,) feed-forward, each in a residual with its norm. */
export interface StackConfig {
  input: { kind: "tokens" | "patches" | "grid" | "frames" | "samples"; vocab_size?: number; scale?: boolean; factor?: number | null; n_types?: number; norm?: boolean; width?: number | null; mask_id?: number | null; tokens_alone?: boolean; image_size?: number; patch_size?: number; n_channels?: number; class_token?: boolean; n_registers?: number; mask_token?: boolean; bias?: boolean; frames?: number; n_frames?: number; n_bins?: number; convolutions?: Convolution[]; conv_norm?: "first" | "all"; conv_bias?: boolean; activation?: string; feature_norm?: boolean; position_width?: number; position_groups?: number };
  d_model: number; n_layers: number; n_heads: number; d_ff: number; positions: Encoding;
  mixer: { kind: "short_convolution" | "state_space" | "selective_scan" | "gated_delta" | "time_mixing" | string; layers: number[] | null; beside: boolean; width?: number; bias?: boolean; n_heads?: number; d_head?: number; d_state?: number; n_groups?: number; conv_bias?: boolean; norm?: "gated" | "before_gate" | null; factors?: [number, number, number, number, number] | null; least_step?: number; most_step?: number | null; d_inner?: number | null; rank?: number; norms?: "weight" | "none" | null; norms_eps?: number; n_key_heads?: number | null; d_key?: number; d_value?: number } | null;
  mixing_layers: number[] | null; ffn_layers: number[] | null; n_groups: number | null; n_kv_heads: number | null;
  d_head: number | null; latent: Latent | null; window: number | null; window_layers: number[] | null;
  window_positions: Rotary | null; attn_scale: number | null; soft_cap: number | null; sinks: boolean;
  attn_gate: boolean; qk_norm: boolean; qk_norm_over: "head" | "heads" | "turned_head"; clip_qkv: number | null;
  rotary_layers: number[] | null; norm: NormConfig | "layer" | "rms"; norm_place: "pre" | "post" | "sandwich" | "branch";
  norm_gain: "weight" | "one_plus_weight" | "none"; norm_eps: number; eps_grows_every: number | null;
  first_norm: boolean; parallel: "one_norm" | "two_norms" | null; final_norm: boolean | null;
  branch_scale: number | null; multipliers: Multipliers; layer_scale: number | null; activation: string; gated: boolean;
  clamp: Clamp | null; experts: Experts | null; bias: boolean; qkv_bias: boolean | null; key_bias: boolean | null;
  out_bias: boolean | null; ffn_bias: boolean | null; down_bias: boolean | null; norm_bias: boolean | null;
  dropout: number; embed_dropout: number | null; attn_dropout: number; ffn_dropout: number;
}

/** A convolution over time. */
export interface Convolution {
  width: number; step: number; channels: number;
}

/** How a stack encodes positions. Its module is built from it, the `StackConfig` and `causal`. */
export interface Encoding {
  kind: string;
}

/** One short vector for each position, from which all heads compute keys and values (DeepSeek-AI 2024, 2.1). A head's key is a part that all heads share, which rotary positions turn, and then a part of its own. */
export interface Latent {
  rank: number; query_rank: number | null; d_shared: number; d_value: number; bias: boolean; norm_eps: number;
}

/** Queries and keys rotated by an angle proportional to their position (Su et al. 2021); half-split layout. */
export interface Rotary {
  kind: "rotary"; base: number; fraction: number; frequencies: number[] | null;
  scaling: { kind: "linear" | "wavelength" | "yarn" | "long" | "dynamic"; factor?: number; low_factor?: number; high_factor?: number; original_length?: number; beta_fast?: number; beta_slow?: number; attention_factor?: number | null; truncate?: boolean; divisors?: number[]; longer?: number[] | null } | null;
  sections: [number, number, number] | null; trained_length: number | null;
}

/** A norm of another package. Its module, a `clearhead.model.norm.Norm`, is built from it, the width and `axes`. */
export interface NormConfig {
  kind: string;
}

/** Constant factors on what maps make, which keep the best learning rate at every width (Yang et al. 2022). */
export interface Multipliers {
  keys: number; attn: number; mix: number; ffn: number; gate: number;
}

/** A gate with limits: down((u + 1) g sigmoid(alpha g)), g = min(gate(x), limit), u = up(x) within +-limit. */
export interface Clamp {
  alpha: number; limit: number;
}

/** Several feed-forward parts. A router chooses a few for each position (Shazeer et al. 2017). */
export interface Experts {
  n: number; n_chosen: number; d_ff: number | null; scores: "softmax" | "sigmoid"; normalised: boolean;
  scale: number | null; router_bias: boolean; correction: boolean; n_groups: number | null;
  n_groups_chosen: number | null; group_best: number; shared: number | null; shared_gate: boolean;
  layers: number[] | null; balance: number;
}

/** Pictures that a tower reads, and whose vectors take the places of marks in a text (Liu et al. 2023, 4.1). */
export interface PictureInput {
  tower: StackConfig; projector: Projector; mark_id: number; keeps_first: boolean; sees: "past" | "picture" | "prompt";
  first_id: number | null; last_id: number | null; video_id: number | null; around: string; tiles: boolean;
}

/** W join(Norm(pool(states))), or with an activation W2 act(W1 …): one vector of the text model for some patches. */
export interface Projector {
  pool: number; join: number; norm_eps: number | null; activation: string | null; width: number | null; bias: boolean;
}

/** The distribution of a new network's weights. */
export interface Init {
  std: number; matrices: "normal" | "xavier"; depth_scaled: boolean;
}

/** out = op(inputs, weights): one step. An untapped value has an address too, but is not stored. */
export interface Op {
  out: string; op: string; inputs?: string[]; weights?: string[]; by?: Record<string, number>; how?: string;
  numbers?: number[];
}

/** The open cells: all, with `causal` only keys up to the query, with `window` only keys closer than that. */
export interface Mask {
  causal: boolean; window: number | null;
}

/** One checkpoint of a training run. */
export interface Checkpoint {
  step: number; loss: number | null; score: number | null;
}

/** What the translations `target` of the word `source` mean, by the page's language. */
export interface Sense {
  source: string; target: string[]; means: Record<string, string>;
}

/** Everything that decides the numbers of a forward pass. */
export interface RunRequest {
  text: string; target: string | null;
  /** Tokens that the decoder reads instead of the target's: those that a model wrote may not spell a text. */
  written?: number[];
  image?: string | null;
  /** A checkpoint, or COMPARED; None: the model that was opened. */
  step?: number | null;
  edits: Edit[]; change?: Change;
}

/** Replaces a value. */
export interface Edit {
  at: string; do: "zero" | "mean" | "set" | "scale" | "close" | "patch" | "add"; value?: number | number[];
  from?: RunRequest;
  /** add: the sets of texts, the difference of whose means is added, `value` times. */
  of?: TextSets;
}

/** Two sets of texts; of an encoder-decoder each with a tab and a target behind it. */
export interface TextSets {
  positive: string[]; negative: string[];
}

/** Another config over the same weights. An absent field stays as it was trained. */
export interface Change {
  /** False leaves out the division of the scores by sqrt(d_k). */
  scale?: boolean;
  /** The kind of positions of every stack. */
  positions?: string;
}

/** Features that are attached to the model: their address, and the Python arguments that load them. */
export interface AttachedFeatures {
  address: string; writes: string; n: number; source: string;
}

/** The changes that the model can take: `positions` lists kinds, its own first. */
export interface Changes {
  scale: boolean; positions: string[];
}

/** A place of another package: its name in links, and its title in the list. */
export interface PlaceAbout {
  name: string; title: string;
}

/** Asks about one forward pass. */
export interface OfRun {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
}

/** A pass at a glance. Tensors: for each `….weights` address A with h t s: `A.u8` (uint8) and `A.max` (h t: float32, what 255 stands for); of a language head `output.ids`, `output.values` (t k, k <= 20) and `output.lse` (t); of another `output.logits`. */
export interface RunReply {
  tokens: Partial<Record<StackName, Token[]>>; facts: Record<string, Fact>;
  /** The target that the decoder read, if any: `request.target`, or what the model wrote. */
  target: string | null;
  /** Present where the request changes the config. */
  plan?: Plan;
  /** Texts of the ids in `output.ids`. */
  words: Record<string, string>;
  /** Rows and columns of an image's patches; the class token comes first. */
  grid?: [number, number];
  /** Notes for the reader, for example words that have no tokens. */
  notes: string[];
}

/** One position of what a stack reads. */
export interface Token {
  id: number; text: string; span: [number, number] | null; type: number;
}

/** A value: its lengths and the letters of its axes (docs/glossary.md). */
export interface Fact {
  shape: number[]; axes: string; by_hand?: boolean;
}

/** Asks for recorded numbers, whole or in part. */
export interface ValuesQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  at: string[]; dtype: "float32" | "float16";
}

/** The shape of each tensor of the reply, which is named as it was asked. Closed cells are NaN. */
export interface ShapesReply {
  shapes: Record<string, number[]>;
}

/** Asks for parameters, whole or one row. */
export interface WeightsQuestion {
  at: string[]; step?: number | null;
}

/** Asks why a head looks there: for the largest pairs of the score at `at`. */
export interface QKQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  at: string; k: number;
}

/** All terms, `rest` of the `left` other pairs and `others` among them, add up to the score. */
export interface QKReply {
  pairs: ScoredPair[]; rest: number; left: number; others: Record<string, number>; score: number;
}

/** One term of an attention score. */
export interface ScoredPair {
  query: string; key: string; value: number;
}

/** Asks what the cell `at` of attention weights adds to a logit. */
export interface OVQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  at: string; logit: number; minus?: number;
}

/** What each writer adds to the logit through one cell of attention, and their sum. */
export interface OVReply {
  shares: Record<string, number>; contribution: number;
}

/** Asks how much of the clean run's answer each state at the addresses `at` restores in the corrupt run. */
export interface PatchingQuestion {
  clean: RunRequest; corrupt: RunRequest; answer: number; minus?: number; position: number; at: string[];
}

/** A tensor for each address in `at`: 0 for the corrupt answer, 1 for the clean one, NaN at unaligned positions. */
export interface PatchingReply {
  /** The aligned positions of each stack, clean and corrupt. */
  alignment: Partial<Record<StackName, [number, number][]>>;
  position: [number, number];
  /** The logit of the answer, minus that of the other, in the clean run. */
  clean: number;
  corrupt: number;
  /** The addresses of the rows of each part, the last block first. */
  sites: Record<"resid" | "attn" | "ffn" | "heads", string[]>;
}

/** How far every op, evaluated again, is from its recorded value. */
export interface CheckReply {
  check: Check;
}

/** The largest differences after evaluating every op again. */
export interface Check {
  recompute_max_abs: number; recompute_max_relative: number; rows_sum_max_error: number;
}

/** Asks for the page's texts in a language. */
export interface TextsQuestion {
  language: string;
}

/** Every text of the page in another language, by key. */
export interface TextsReply {
  texts: Record<string, string>;
}

/** Asks how a text is cut. */
export interface TokenizeQuestion {
  /** Shorter than what a pass reads: the reply holds every merge of every word. */
  text: string;
  target?: boolean;
}

/** How a text is cut into tokens. */
export interface TokenizeReply {
  words: TokenizedWord[]; unknown: string[];
}

/** A word: its pieces before any merge, every merge in order, and its tokens. */
export interface TokenizedWord {
  text: string; span: [number, number]; start: string[]; merges: Merge[]; tokens: Token[];
}

/** One merge of byte-pair encoding, and the pieces that are left after it. */
export interface Merge {
  left: string; right: string; rank: number; pieces: string[];
}

/** Asks how much the answer changes without each part. */
export interface EffectsQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  at: string[]; position?: number;
  /** The logit whose fall is measured, in place of the divergence of the answer. */
  logit?: number;
}

/** KL(plain || without) in nats, the fall of the logit, or 1 - cosine of the vectors, by address. */
export interface EffectsReply {
  effects: Record<string, number>;
}

/** Asks what each head does. `at` lists attention weights whose value-weighted norms are wanted. */
export interface StatisticsQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  at: string[];
}

/** The facts of each head, by the address of its weights with [h=…]. For each A in `at` a tensor `A.norms` (h t s): the value-weighted norms ||w v W_O||. */
export interface StatisticsReply {
  heads: Record<string, HeadFacts>;
}

/** What a head does (clearhead/analysis/heads.py). */
export interface HeadFacts {
  kind: string; entropy: number; relative_entropy: number; previous: number; same: number; next: number; first: number;
  offset: number; offset_share: number; distance: number;
}

/** Asks what the network would say after each block, at all positions or at one. */
export interface LensQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  k: number; position?: number;
  /** Whether a head that pools reads all positions together. */
  whole?: boolean;
}

/** Tensors `ids`, `probabilities` (l t k), `lse` (l t). */
export interface LensReply {
  addresses: string[]; words: Record<string, string>;
}

/** Asks how much of one answer each part of the network carries. */
export interface OverviewQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  /** That of the answer in the last stack. None: the one whose best head moves it most. */
  position?: number;
  part: "heads" | "curves" | "lanes" | "ffn";
  /** The text with which a vector is compared. None: itself. */
  near?: string;
}

/** How much of an answer moves with each edit: 1/2 sum |p - p(edit)|, 0 to 1. NaN: not measured. Tensors of heads: `moved` and `p`, n each. Of lanes and ffn: `encoder` and `decoder`, l n. */
export interface OverviewReply {
  position: number;
  /** A vector's answer is the text that it is compared with, `p` its cosine, which moves. */
  kind: "word" | "class" | "vector";
  /** The likeliest, of heads. */
  answers?: OverviewAnswer[];
  /** The address of each head, of heads. */
  at?: string[];
  decided?: DecidedHead;
  /** The weights of the strongest heads, the strongest first; at least 0.02. */
  curves?: CurveFacts[];
  /** The tokens of each lane, of lanes and ffn. */
  stacks?: Partial<Record<StackName, number[][]>>;
}

/** An answer at the position, and its probability. */
export interface OverviewAnswer {
  id: number; word: string; p: number;
}

/** The head that moves the answer most: its index in `at`. */
export interface DecidedHead {
  head: number; moved: number;
  /** Where no head moves much of the answer. */
  part?: DecidedPart;
  /** Then each word or region, those first that move most. */
  words?: DecidedPart[];
  /** The answer that gains most without that part, or without the head. */
  instead?: OverviewAnswer;
}

/** First states of tokens, which together move more of the answer than each head. */
export interface DecidedPart {
  at: string[]; moved: number; p: number | null;
}

/** An attention weight and its effect; p is the probability of the likeliest answer without it. */
export interface CurveFacts {
  at: string; weight: number; moved: number; p: number | null;
}

/** Asks what each part adds to a logit. */
export interface AttributionQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  position: number; logit: number; minus?: number;
}

/** What each part adds to a logit, or to its difference from another. */
export interface AttributionReply {
  shares: Record<string, number>; logit: number;
}

/** Asks for the score of every node: about how much the number falls if it sees the corrupt run. */
export interface CircuitsQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  corrupt: RunRequest; answer?: number; minus?: number; position?: number;
  /** Whether the model's features are parts by themselves. */
  features?: boolean;
}

/** logit[answer] - logit[minus] at a position; without logits, how far the vector lies along its shift. */
export interface CircuitsReply {
  clean: number; corrupt: number; answer: number | null; minus: number | null; position: number | null;
  /** By the address of what a part writes: about what the number loses if it is corrupt, by position. */
  nodes: Record<string, number[]>;
  words: Record<string, string>;
}

/** Asks for the edges with the largest scores. */
export interface EdgesQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  corrupt: RunRequest; answer?: number; minus?: number; position?: number;
  /** Whether the model's features are parts by themselves. */
  features?: boolean;
  steps: number; most: number;
}

/** The edges with the largest scores, largest first, and how many there are. */
export interface EdgesReply {
  edges: Edge[]; total: number;
}

/** What a reader takes from a writer. */
export interface Edge {
  writer: string; reader: string; score: number;
}

/** Asks for the number with all but a share of the edges corrupt. */
export interface FaithfulnessQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  corrupt: RunRequest; answer?: number; minus?: number; position?: number;
  /** Whether the model's features are parts by themselves. */
  features?: boolean;
  steps: number; share: number;
}

/** One point of a faithfulness curve. */
export interface FaithfulnessReply {
  share: number; n_edges: number; metric: number; faithfulness: number | null;
}

/** Asks how an edge's score comes about, and for what patching that edge measures. */
export interface EdgeQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  corrupt: RunRequest; answer?: number; minus?: number; position?: number;
  /** Whether the model's features are parts by themselves. */
  features?: boolean;
  steps: number; writer: string; reader: string; terms: number;
}

/** How the score of an edge comes about, and the effect that patching it measures. */
export interface EdgeReply {
  score: number; exact: number; positions: number[]; terms: EdgeTerm[]; n_terms: number;
}

/** One product of an edge's score. */
export interface EdgeTerm {
  t: number; d: number; change: number; gradient: number; product: number;
}

/** Asks what changed from one model to another: with texts, also in heads, neurons and answers. */
export interface DifferenceQuestion {
  /** The checkpoint of the first; None: the model that was opened. */
  step?: number | null;
  /** The checkpoint of the second. */
  other: number;
  texts: number;
}

/** The changes from one model to another, the largest first. */
export interface DifferenceReply {
  tensors: TensorChange[]; differing: number; n_tensors: number; units: UnitChange[]; n_texts: number;
  heads: PartChange[]; neurons: PartChange[]; answers: ChangedAnswers | null;
}

/** How far one tensor of the second network is from that of the first. */
export interface TensorChange {
  name: string; shape: number[]; norm: number; relative: number; singular: number[]; rank: number | null;
  effective_rank: number | null;
}

/** How far the own weights of a head or neuron are from those of the first network. */
export interface UnitChange {
  site: string; score: number; relative: number; tensor: string;
}

/** The change of a head or neuron: norms of its output, as shares of the stream's norm; means over texts. */
export interface PartChange {
  site: string; own: number; interval: [number, number]; moved: number; total: number; before: number;
  effect: EffectChange | null;
}

/** KL(whole || without the part), in nats, in both models: means over the texts. */
export interface EffectChange {
  first: number; second: number; interval: [number, number];
}

/** The likeliest answers of both models. A text counts as the mean over its positions. */
export interface ChangedAnswers {
  changed: Mean; kl: Mean; scores: Record<string, ScoreChange>; n_changed_texts: number; texts: ChangedAnswer[];
}

/** A mean over texts with its 95% bootstrap interval. */
export interface Mean {
  value: number; interval: [number, number];
}

/** A score of both models on the next tokens of the texts. */
export interface ScoreChange {
  first: number; second: number; difference: number; interval: [number, number]; p: number;
}

/** The place of a text where the two models' answers are furthest apart. */
export interface ChangedAnswer {
  row: number; text: string | string[]; position: number | null; before: string; first: string; second: string;
  kl: number;
}

/** Asks for the texts that excite a part most. Asked again, it looks at more of them. */
export interface ExamplesQuestion {
  at: string;
  /** For a state: the direction along which it is measured. */
  towards?: Towards;
  top: number;
}

/** The vector that a run has at an address, such as `decoder.blocks.1.resid_post[t=3]`. */
export interface Towards {
  run: RunRequest; at: string;
}

/**  */
export interface ExamplesReply {
  measure: "value" | "norm" | "towards" | "weight"; read: number; of: number; done: boolean;
  from: "given" | "valid" | "train" | "samples" | "sentences" | "prompts"; rows: ExampleRow[];
}

/** A text, with the tokens of the stack that the address names, and the strength of each. */
export interface ExampleRow {
  text: string; target: string | null; value: number; position: number;
  /** The token that a weight is on: of cross-attention one of the source. */
  key: number | null;
  /** The tokens that cross-attention reads. */
  source: string[] | null;
  tokens: string[]; values: number[];
}

/** Asks for texts that differ from the run's in one word, and whether they have its answer. */
export interface ProposalQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  /** That of the answer. None: the overview's. */
  position?: number;
}

/** Texts with another word in one place, and the position of the answer. */
export interface ProposalReply {
  position: number;
  /** Those with another answer, one, or else all: first those that differ clearly, and the word most alike. */
  other: string[];
  /** The run's text, and others with its answer. */
  same: string[];
}

/** Asks for effects over a set of prompts (clearhead/capture/prompts.py). */
export interface PromptsQuestion {
  /** The name of a bundled set, a template (TOML), or a table with tabs and a line of names. */
  pairs: string;
  how: "patch" | "ablate" | "direct" | "lens" | "nodes" | "steer"; sites: string;
  /** The most pairs. */
  n: number;
  /** What the decoder of an encoder-decoder has written so far, for pairs that say none. */
  target?: string;
  position?: number;
  /** Whether the report is wanted too. */
  report?: boolean;
}

/** The effects. The first two are the numbers themselves, clean and corrupt, of a model with logits. */
export interface PromptsReply {
  effects: Effect[]; n: number;
  /** The first pair. */
  example: [string, string];
  report: string | null;
}

/** A mean over texts (the answer's change in nats, or the vector's as 1 - cosine) or over pairs of prompts. */
export interface Effect {
  site: string; mean: number; interval: [number, number]; n_texts: number;
}

/** Asks for the rows of the token table that are nearest to a vector. */
export interface NeighboursQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  stack: StackName; of: ById | ByAddress | ByNumbers; k: number;
}

/** A row of the token table. */
export interface ById {
  id: number;
}

/** Any recorded vector as wide as the token table. */
export interface ByAddress {
  at: string;
}

/** Any other vector as wide as the token table. */
export interface ByNumbers {
  numbers: number[];
}

/** The nearest rows of the token table. */
export interface NeighboursReply {
  ids: number[]; cosines: number[]; words: Record<string, string>;
}

/** Asks for the most active features of a position. `also` are shown even if they are not active. */
export interface FeaturesQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  at: string; position: number; k: number; also: number[];
}

/** The strongest features of a position, and how many are active there. */
export interface FeaturesReply {
  active: ActiveFeature[]; count: number;
}

/** A feature, its activation, and the words that it makes likelier. */
export interface ActiveFeature {
  feature: number; value: number; words: string[];
}

/** Asks for the difference of the means of two sets of texts at an address. */
export interface DirectionQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  at: string; of: TextSets;
  /** Those whose probabilities are told, with the direction added up to `MOST` times, forwards and backwards. */
  answers?: number[];
  position?: number;
}

/** The length of the direction, and the mean length of the run's states at the address. */
export interface DirectionReply {
  length: number; states: number;
  /** The probability of each answer by strength. */
  curve: [number, number[]][];
}

/** Asks for the model's continuation of the run's text, or for the target that it writes. */
export interface GenerateQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  settings: GenerateSettings;
}

/** The settings of generation. */
export interface GenerateSettings {
  max_new_tokens: number;
  /** `beams` times `max_new_tokens` bounds the tree: at most 4,096 nodes. */
  beams: number;
  temperature: number; top_k: number | null; top_p: number | null; seed: number; length_penalty?: number;
}

/** A continuation as a tree; node 0 is the start. */
export interface GenerateReply {
  text: string; nodes: TreeNode[];
  /** Node indices of the answer, first token first. */
  best: number[];
  steps: WritingStep[]; words: Record<string, string>; notes: string[];
}

/** A token that was written, whether kept or dropped. */
export interface TreeNode {
  parent: number; id: number; text: string; log_prob: number; score: number; kept: boolean; final: boolean; step: number;
}

/** The likeliest tokens of a step: id and probability over the whole vocabulary. */
export interface WritingStep {
  top: [number, number][];
}

/** Asks for the page as one file, which begins with `run` and, if it is given, `other` beside it. */
export interface ExportQuestion {
  run: RunRequest;
  /** Whether it waits for all other questions. */
  later?: boolean;
  other?: RunRequest;
  /** The runs of a walk, which the file answers too. */
  stops: RunRequest[];
  /** The fragment that the page begins with. */
  state?: string;
}

/** A tensor `html` (uint8). */
export interface ExportReply {
  bytes: number; live: boolean;
}

/** The limits of an overview (clearhead/analysis/overview.py). */
export const HEADS = 24, CURVES = 256, LANES = 24, REGIONS = 3, STRETCHES = 8, LEAST_WEIGHT = 0.02, TOGETHER = 5, DECIDES = 0.2;
