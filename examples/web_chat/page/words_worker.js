// A worker that makes words with the files of a bundle, which are not to be trusted: whoever started it may end it.

import { Template } from "@huggingface/jinja";
import { Tokenizer } from "@huggingface/tokenizers";

let tokenizer;
let template;
let special;

const ANSWERS = {
  open(assets) {
    tokenizer = new Tokenizer(JSON.parse(assets.tokenizer), { clean_up_tokenization_spaces: false });
    template = assets.template === undefined ? undefined : new Template(assets.template);
    special = assets.special;
  },
  encode: (text, isSpecial) => tokenizer.encode(text, { add_special_tokens: isSpecial }).ids,
  decode: (ids) => tokenizer.decode(ids, { skip_special_tokens: true }),
  format(messages) {
    if (!template) throw new Error("the bundle has no chat template");
    return template.render({ ...special, messages, add_generation_prompt: true });
  },
};

globalThis.onmessage = ({ data: { number, what, values } }) => {
  try {
    postMessage({ number, value: ANSWERS[what](...values) });
  } catch (error) {
    postMessage({ number, reason: String(error?.message ?? error) });
  }
};
