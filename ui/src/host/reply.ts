/** A reply as every host carries it: one safetensors file with the JSON part in its metadata. */

import type { Reply } from "../core/host";
import { readSafetensors } from "../core/safetensors";

export function readReply<T>(bytes: ArrayBuffer): Reply<T> {
  const { metadata, tensors } = readSafetensors(bytes);
  return { json: JSON.parse(metadata.reply ?? "null") as T, tensors };
}
