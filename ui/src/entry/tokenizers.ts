/** What a file with a tokenizer adds to the page's script: it reads any text. */

import { Texts } from "../tokenizers/texts";

Object.assign(globalThis, { ClearheadTexts: Texts });
