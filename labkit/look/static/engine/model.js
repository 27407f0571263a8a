/* The decoder: Qwen3 and Qwen3-MoE, one token at a time with a KV cache.

   The names are those of the labs and of Hugging Face. E hidden_size, H query heads, K KV
   heads, G = H/K queries per KV head, D head_dim, S tokens so far, X experts, V vocabulary.

   `parts` holds what the view "swap" may exchange; each is one of the labs' exercises. */
"use strict";

(function (T) {
  const PARTS = {
    norm: T.rmsNorm, // (vector, weight, eps) -> vector                          lab 01
    rotate, // (vector of a head, position, theta) -> vector                     lab 02
    kvHead: (head, G, K) => Math.floor(head / G), // which KV head it reads      lab 03
    qkNorm: T.rmsNorm, // (vector of a head, weight, eps) -> vector              lab 03
    activation: T.silu, // (number) -> number                                    lab 04
    route, // (router logits, k, norm_topk_prob) -> {probs, chosen, weights}     lab 05
  };

  /* Lab 02: turn each pair (x_i, x_{i + D/2}) by position * theta^(-2i / D) */
  function rotate(x, position, theta) {
    const half = x.length / 2;
    const out = new Float32Array(x.length);
    for (let i = 0; i < half; i++) {
      const angle = position * T.turn(i, x.length, theta);
      const cos = Math.cos(angle), sin = Math.sin(angle);
      out[i] = x[i] * cos - x[i + half] * sin;
      out[i + half] = x[i + half] * cos + x[i] * sin;
    }
    return out;
  }

  /* How far pair i turns from one position to the next, in radians */
  T.turn = (i, headDim, theta) => Math.pow(theta, (-2 * i) / headDim);

  /* Lab 05: the k most probable experts, and how much each of them counts */
  function route(routerLogits, k, normTopkProb) {
    const probs = T.softmax(routerLogits); // (X,)
    const chosen = T.topk(probs, k);
    const sum = chosen.reduce((total, expert) => total + probs[expert], 0);
    const weights = chosen.map((expert) => probs[expert] / (normTopkProb ? sum : 1));
    return { probs, chosen, weights };
  }

  /* Lab 07: the keys and values of all tokens so far, layer by layer */
  class KVCache {
    constructor(layers) {
      this.keys = Array.from({ length: layers }, () => []); // [layer][position] (K * D,)
      this.values = Array.from({ length: layers }, () => []);
    }
    get length() {
      return Math.min(...this.values.map((each) => each.length));
    }
    update(layer, key, value) {
      this.keys[layer].push(key);
      this.values[layer].push(value);
      return [this.keys[layer], this.values[layer]];
    }
    /* Forget all but the first tokens */
    cut(length) {
      for (const each of [...this.keys, ...this.values]) each.length = length;
    }
  }

  class Qwen3 {
    /* tensors: {name: {rows, cols, data}} with Hugging Face's names */
    constructor(config, tensors, parts = {}) {
      this.config = config;
      this.tensors = tensors;
      this.parts = { ...PARTS, ...parts };
    }

    /* The same weights with some parts exchanged */
    with(parts) {
      return new Qwen3(this.config, this.tensors, parts);
    }

    newCache() {
      return new KVCache(this.config.num_hidden_layers);
    }

    /* Lab 06: logits (V,) for what follows this token, and a record of what happened inside. On a
       slow computer there are pauses between the parts of a layer. */
    async forward(token, cache) {
      const { num_hidden_layers } = this.config;
      const position = cache.length;
      let hidden = this.embed(token); // (E,)
      const layers = [];
      for (let layer = 0; layer < num_hidden_layers; layer++) {
        const seen = { expertsSeen: null };
        seen.normed = this.norm(hidden, `model.layers.${layer}.input_layernorm`);
        seen.between = T.add(hidden, this.attention(seen.normed, layer, position, cache, seen));
        await T.rest();
        seen.normedAgain = this.norm(seen.between, `model.layers.${layer}.post_attention_layernorm`);
        const name = `model.layers.${layer}.mlp`;
        const added = this.usesExperts(layer)
          ? this.experts(seen.normedAgain, name, seen) : this.mlp(seen.normedAgain, name, seen);
        hidden = T.add(seen.between, added);
        layers.push({ ...seen, hidden });
        await T.rest();
      }
      return { logits: this.read(hidden), layers };
    }

    /* Logits (V,) by the last norm and the head; of the stream (E,) anywhere on its way too */
    read(hidden) {
      const { "lm_head.weight": own, "model.embed_tokens.weight": table } = this.tensors;
      return T.linear(own || table, this.norm(hidden, "model.norm")); // tied: one matrix, used twice
    }

    /* The row (E,) of a token, with which its stream begins */
    embed(token) {
      const { hidden_size: E } = this.config;
      return this.tensors["model.embed_tokens.weight"].data.slice(token * E, (token + 1) * E);
    }

    norm(x, name) {
      const weight = this.tensors[`${name}.weight`].data;
      return this.parts.norm(x, weight, this.config.rms_norm_eps);
    }

    project(name, x) {
      return T.linear(this.tensors[`${name}.weight`], x, this.tensors[`${name}.bias`]);
    }

    usesExperts(layer) {
      const { num_experts = 0, decoder_sparse_step = 1, mlp_only_layers = [] } = this.config;
      if (!num_experts || mlp_only_layers.includes(layer)) return false;
      return (layer + 1) % decoder_sparse_step === 0;
    }

    /* Lab 03: grouped-query attention of one new token over all so far, (E,) -> (E,) */
    attention(x, layer, position, cache, seen) {
      const { num_attention_heads: H, num_key_value_heads: K, head_dim: D } = this.config;
      const name = `model.layers.${layer}.self_attn`;
      const query = this.heads(`${name}.q_proj`, `${name}.q_norm`, x, H, position);
      const key = this.heads(`${name}.k_proj`, `${name}.k_norm`, x, K, position);
      const value = this.project(`${name}.v_proj`, x); // (K * D,)
      const [keys, values] = cache.update(layer, joined(key.turned, D), value); // S of each

      const mixed = new Float32Array(H * D);
      const attention = query.turned.map((one, head) => {
        const from = this.parts.kvHead(head, H / K, K) * D; // where its KV head begins
        const scores = keys.map((past) => T.dot(one, past, from) / Math.sqrt(D));
        const weights = T.softmax(scores); // (S,)
        for (let s = 0; s < weights.length; s++) {
          const past = values[s], weight = weights[s];
          for (let i = 0; i < D; i++) mixed[head * D + i] += weight * past[from + i];
        }
        return weights;
      });
      Object.assign(seen, { query, key, attention });
      return this.project(`${name}.o_proj`, mixed);
    }

    /* Each head of a projection: as projected, normed, and turned by its position */
    heads(projection, norm, x, count, position) {
      const { head_dim: D, rms_norm_eps: eps, rope_theta } = this.config;
      const weight = this.tensors[`${norm}.weight`].data; // (D,) the same for every head
      const all = this.project(projection, x);
      const plain = Array.from({ length: count }, (_, h) => all.subarray(h * D, (h + 1) * D));
      const normed = plain.map((each) => this.parts.qkNorm(each, weight, eps));
      const turned = normed.map((each) => this.parts.rotate(each, position, rope_theta));
      return { plain, normed, turned }; // each: count times (D,)
    }

    /* Lab 04: SwiGLU, (E,) -> (E,) */
    mlp(x, name, seen = {}) {
      const gate = this.project(`${name}.gate_proj`, x); // (I,)
      const up = this.project(`${name}.up_proj`, x); // (I,)
      const open = gate.map((value, i) => this.parts.activation(value) * up[i]);
      seen.open = open;
      return this.project(`${name}.down_proj`, open);
    }

    /* Lab 05: the experts that the router picked, weighted and added up, (E,) -> (E,) */
    experts(x, name, seen) {
      const { num_experts_per_tok: k, norm_topk_prob } = this.config;
      const routed = this.parts.route(this.project(`${name}.gate`, x), k, norm_topk_prob);
      const mixed = new Float32Array(x.length);
      routed.chosen.forEach((expert, slot) => {
        const said = this.mlp(x, `${name}.experts.${expert}`);
        for (let i = 0; i < mixed.length; i++) mixed[i] += routed.weights[slot] * said[i];
      });
      seen.expertsSeen = routed;
      return mixed;
    }
  }

  /* Heads side by side in one vector: count times (D,) -> (count * D,) */
  function joined(heads, D) {
    const out = new Float32Array(heads.length * D);
    heads.forEach((each, head) => out.set(each, head * D));
    return out;
  }

  /* A text with the model's record of every token in it: what all views look at */
  class Run {
    constructor(model) {
      this.model = model;
      this.cache = model.newCache();
      this.ids = [];
      this.steps = []; // steps[i]: what the model computed at token i
    }
    async push(id) {
      this.steps.push(await this.model.forward(id, this.cache));
      this.ids.push(id);
      return this;
    }
    /* The same for many tokens; goesOn() after each says whether to read the next */
    async read(ids, goesOn = () => true) {
      for (const id of ids) {
        await this.push(id);
        if (!goesOn()) break;
      }
      return this;
    }
    /* Keep the first tokens alone */
    cut(length) {
      this.cache.cut(length);
      this.ids.length = this.steps.length = length;
    }
    get logits() {
      return this.steps[this.steps.length - 1].logits;
    }
    /* What token i cost the model in nats, given all before it; the first costs nothing */
    nats(i) {
      if (i === 0) return 0;
      const { logits } = this.steps[i - 1];
      const largest = logits[T.argmax(logits)]; // kept apart, so that no exp over- or underflows
      const sum = logits.reduce((total, each) => total + Math.exp(each - largest), 0);
      return Math.log(sum) + largest - logits[this.ids[i]];
    }
  }

  Object.assign(T, { Qwen3, KVCache, Run });
})(globalThis.TinyLLM);
