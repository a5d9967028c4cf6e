/** A sound, made again from the loudness of its bands, which is what a model reads of it. */

import type { Tensor } from "../../core/host";

const RATE = 16000, MOST = 15 + (27 * Math.log(8)) / Math.log(6.4);

/** Of a band: linear to 1000 Hz, which are 15 mels, and exponential above (Slaney 1998). */
const hertz = (mels: number): number => (mels < 15 ? (200 * mels) / 3 : 1000 * Math.exp((Math.log(6.4) / 27) * (mels - 15)));

/** Plays frames by bands, `seconds` apart: a tone for each band. */
export function play({ shape: [n = 0, bands = 0], data }: Tensor, seconds: number): void {
  const each = Math.round(seconds * RATE), context = new AudioContext({ sampleRate: RATE }), source = context.createBufferSource();
  source.buffer = context.createBuffer(1, n * each, RATE);
  const out = source.buffer.getChannelData(0), loud = Float32Array.from(data, (x) => 10 ** (2 * x - 2));
  for (let c = 0; c < bands; c++) {
    const turn = (2 * Math.PI * hertz((MOST * (c + 1)) / (bands + 1))) / RATE;
    for (let i = 0; i < out.length; i++) out[i]! += loud[Math.floor(i / each) * bands + c]! * Math.sin(turn * i);
  }
  const peak = out.reduce((most, x) => Math.max(most, Math.abs(x)), 1e-9);
  out.forEach((x, i) => (out[i] = (0.7 * x) / peak));
  source.connect(context.destination);
  source.onended = () => void context.close();
  source.start();
}
