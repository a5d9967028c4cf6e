/** What a file with a large model adds to the script of its worker: a reader on WebGPU, built as a script of its own. */

import { reader } from "../engine/webgpu/reader";

Object.assign(globalThis, { clearheadWebGPU: reader });
