/** The places, by name. */

import type { Component } from "svelte";
import type { View } from "../state/page";
import Attention from "./Attention.svelte";
import Embedding from "./Embedding.svelte";
import FeedForward from "./FeedForward.svelte";
import Generation from "./Generation.svelte";
import Geometry from "./Geometry.svelte";
import Heads from "./Heads.svelte";
import Image from "./Image.svelte";
import Lens from "./Lens.svelte";
import Logits from "./Logits.svelte";
import Norm from "./Norm.svelte";
import Output from "./Output.svelte";
import Position from "./Position.svelte";
import Residual from "./Residual.svelte";
import Scale from "./Scale.svelte";
import Tokens from "./Tokens.svelte";
import Training from "./Training.svelte";

export const views: Record<View, Component> = {
  tokens: Tokens, embedding: Embedding, position: Position, attention: Attention, heads: Heads,
  output: Output, norm: Norm, ffn: FeedForward, residual: Residual, logits: Logits, generation: Generation,
  lens: Lens, geometry: Geometry, scale: Scale, training: Training, image: Image,
};
