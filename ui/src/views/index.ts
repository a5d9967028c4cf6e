/** The places, by name. */

import type { Component } from "svelte";
import type { View } from "../state/page";
import Attention from "./attention/Attention.svelte";
import Embedding from "./embedding/Embedding.svelte";
import FeedForward from "./ffn/FeedForward.svelte";
import Generation from "./generation/Generation.svelte";
import Geometry from "./geometry/Geometry.svelte";
import Heads from "./heads/Heads.svelte";
import Image from "./image/Image.svelte";
import Lens from "./lens/Lens.svelte";
import Logits from "./logits/Logits.svelte";
import Norm from "./norm/Norm.svelte";
import Output from "./output/Output.svelte";
import Position from "./position/Position.svelte";
import Residual from "./residual/Residual.svelte";
import Scale from "./scale/Scale.svelte";
import Tokens from "./tokens/Tokens.svelte";
import Training from "./training/Training.svelte";

export const views: Record<View, Component> = {
  tokens: Tokens, embedding: Embedding, position: Position, attention: Attention, heads: Heads,
  output: Output, norm: Norm, ffn: FeedForward, residual: Residual, logits: Logits, generation: Generation,
  lens: Lens, geometry: Geometry, scale: Scale, training: Training, image: Image,
};
