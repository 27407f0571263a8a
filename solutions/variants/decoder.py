# Right answers of lab 06, written otherwise. Every one has to earn full points.

# %% exercise 6.1: one method a sublayer, mlp told by its type
class Qwen3DecoderLayer(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        kind = Qwen3MoeSparseMoeBlock if uses_experts(config, layer_idx) else Qwen3MLP
        self.mlp = kind(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = Qwen3Attention(config=config, layer_idx=layer_idx)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        hidden_states = self.attended(hidden_states, cos=cos, sin=sin, mask=mask, cache=cache)
        return self.fed(hidden_states)

    def attended(self, x, **arguments):
        return x + self.self_attn(self.input_layernorm(x), **arguments)

    def fed(self, x):
        said = self.mlp(self.post_attention_layernorm(x))
        if isinstance(said, tuple):
            return x + said[0], said[1]
        return x + said, None


# %% exercise 6.1: residual kept aside, as in transformers
class Qwen3DecoderLayer(nn.Module):
    def __init__(self, config: Qwen3Config, layer_idx: int):
        super().__init__()
        E, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn = Qwen3Attention(config, layer_idx)
        if uses_experts(config, layer_idx):
            self.mlp = Qwen3MoeSparseMoeBlock(config)
        else:
            self.mlp = Qwen3MLP(config, config.intermediate_size)
        self.input_layernorm = RMSNorm(E, eps)
        self.post_attention_layernorm = RMSNorm(E, eps)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states = self.self_attn(hidden_states, cos, sin, mask, cache)
        hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.mlp(self.post_attention_layernorm(hidden_states))
        router_logits = None
        if isinstance(hidden_states, tuple):
            hidden_states, router_logits = hidden_states
        hidden_states = hidden_states + residual
        return hidden_states, router_logits


# %% exercise 6.1: a clone that is added to in place
class Qwen3DecoderLayer(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.sparse = uses_experts(config, layer_idx)
        norms = [RMSNorm(config.hidden_size, config.rms_norm_eps) for _ in range(2)]
        self.input_layernorm, self.post_attention_layernorm = norms
        self.self_attn = Qwen3Attention(config, layer_idx)
        self.mlp = (Qwen3MLP, Qwen3MoeSparseMoeBlock)[self.sparse](config)

    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        stream = hidden_states.clone()
        stream += self.self_attn(self.input_layernorm(stream.clone()), cos, sin, mask, cache)
        said, logits = self.mlp(self.post_attention_layernorm(stream)), None
        if self.sparse:
            said, logits = said
        return torch.add(stream, said), logits


# %% exercise 6.2: positions as in transformers, padding at position 1
class Qwen3Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        layers = [Qwen3DecoderLayer(config, i) for i in range(config.num_hidden_layers)]
        self.layers = nn.ModuleList(layers)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)

    def forward(self, input_ids, attention_mask=None, cache=None):
        past = cache.length if cache is not None else 0
        check_inputs(self.config, input_ids, attention_mask, past)
        batch, new = input_ids.shape
        if attention_mask is None:
            attention_mask = torch.ones(batch, past + new, dtype=torch.long)
        real = attention_mask.bool()
        position_ids = (real.long().cumsum(-1) - 1).masked_fill(~real, 1)[:, -new:]
        allowed = causal_mask(new, past + new)[None, None] & real[:, None, None]
        cos, sin = rope_cos_sin(position_ids, self.config.head_dim, self.config.rope_theta)
        x, routers = self.embed_tokens(input_ids), []
        for layer in self.layers:
            x, logits = layer(x, cos, sin, allowed, cache)
            routers.append(logits)
        return self.norm(x), [logits for logits in routers if logits is not None]


# %% exercise 6.2: padding sees itself
class Qwen3Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList()
        for i in range(config.num_hidden_layers):
            self.layers.append(Qwen3DecoderLayer(config, layer_idx=i))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, input_ids, attention_mask=None, cache=None):
        cached = 0 if cache is None else cache.length
        check_inputs(self.config, input_ids, attention_mask, cached)
        B, T = input_ids.shape
        S = cached + T
        column = torch.arange(S)
        row = column[cached:, None]
        allowed = (column <= row).expand(B, T, S)
        position_ids = column[cached:].expand(B, T)
        if attention_mask is not None:
            keep = attention_mask == 1
            allowed = (allowed & keep[:, None]) | (column == row)
            position_ids = torch.cumsum(keep, 1)[:, cached:] - 1
        hidden_states = self.embed_tokens(input_ids)
        angles = rope_cos_sin(position_ids, self.config.head_dim, self.config.rope_theta)
        router_logits = []
        for layer in self.layers:
            hidden_states, logits = layer(
                hidden_states, *angles, mask=allowed[:, None], cache=cache
            )
            if layer.uses_experts:
                router_logits += [logits]
        return self.norm(hidden_states), router_logits


# %% exercise 6.2: angles looked up in a table, positions text by text
class Qwen3Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            [Qwen3DecoderLayer(config, i) for i in range(config.num_hidden_layers)]
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, input_ids, attention_mask=None, cache=None):
        cached = getattr(cache, "length", 0)
        check_inputs(self.config, input_ids, attention_mask, cached)
        (batch, new), config = input_ids.shape, self.config
        every = torch.arange(config.max_position_embeddings)[None]
        cos, sin = rope_cos_sin(every, config.head_dim, config.rope_theta)
        mask = causal_mask(new, cached + new).unsqueeze(0).repeat(batch, 1, 1)
        where = torch.arange(cached, cached + new).repeat(batch, 1)
        if attention_mask is not None:
            for text, marks in enumerate(attention_mask.tolist()):
                seen = 0
                for column, mark in enumerate(marks):
                    if not mark:
                        mask[text, :, column] = False
                    if column >= cached:
                        where[text, column - cached] = seen
                    seen += int(mark)
        x, found = self.embed_tokens.weight[input_ids], []
        for layer in self.layers:
            x, logits = layer(x, cos[0][where], sin[0][where], mask.unsqueeze(1), cache)
            found.extend([] if logits is None else [logits])
        return self.norm(x), found


# %% exercise 6.3: head before model, tied the other way round
class Qwen3ForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.model = Qwen3Model(config)
        self.tie_weights()
        init_weights(self, config.initializer_range)

    def tie_weights(self):
        if self.config.tie_word_embeddings:
            self.model.embed_tokens.weight = self.lm_head.weight

    def forward(self, input_ids, attention_mask=None, cache=None, output_router_logits=False):
        hidden_states, router_logits = self.model(
            input_ids=input_ids, attention_mask=attention_mask, cache=cache
        )
        logits = self.lm_head(hidden_states)
        if output_router_logits:
            return logits, router_logits
        return logits

    def load_state_dict(self, state_dict, strict=True, assign=False):
        embedding = state_dict.get("model.embed_tokens.weight")
        if self.config.tie_word_embeddings and embedding is not None:
            state_dict = {"lm_head.weight": embedding, **state_dict}
        result = super().load_state_dict(state_dict, strict, assign)
        self.tie_weights()
        return result


# %% exercise 6.3: registered by name, logits by einsum
class Qwen3ForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Qwen3Model(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, False)
        self.tie_weights()
        init_weights(self, config.initializer_range)

    def tie_weights(self):
        if self.config.tie_word_embeddings is True:
            shared = self.model.embed_tokens.weight
            self.lm_head.register_parameter("weight", shared)

    def forward(self, input_ids, attention_mask=None, cache=None, output_router_logits=False):
        hidden_states, routers = self.model(input_ids, attention_mask, cache)
        logits = torch.einsum("bte,ve->btv", hidden_states, self.lm_head.weight)
        if not output_router_logits:
            return logits
        return logits, routers

    def load_state_dict(self, state_dict, strict=True, assign=False):
        embedding = state_dict.get("model.embed_tokens.weight")
        if self.config.tie_word_embeddings and embedding is not None:
            state_dict = {"lm_head.weight": embedding, **state_dict}
        result = super().load_state_dict(state_dict, strict, assign)
        self.tie_weights()
        return result


# %% exercise 6.3: a matrix product, token by token
class Qwen3ForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model, V = Qwen3Model(config), config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, V, bias=None)
        self.tie_weights()
        init_weights(self, config.initializer_range)

    def tie_weights(self):
        embed, head = self.model.embed_tokens, self.lm_head
        head.weight = embed.weight if self.config.tie_word_embeddings else head.weight

    def forward(self, input_ids, attention_mask=None, cache=None, output_router_logits=False):
        stream, router_logits = self.model(input_ids, attention_mask, cache)
        logits = torch.stack([token @ self.lm_head.weight.T for token in stream.unbind(1)], 1)
        return (logits, list(router_logits)) if output_router_logits else logits

    def load_state_dict(self, state_dict, strict=True, assign=False):
        embedding = state_dict.get("model.embed_tokens.weight")
        if self.config.tie_word_embeddings and embedding is not None:
            state_dict = {"lm_head.weight": embedding, **state_dict}
        result = super().load_state_dict(state_dict, strict, assign)
        self.tie_weights()
        return result


# %% exercise 6.4: the active ones first
def count_parameters(config):
    E, D = config.hidden_size, config.head_dim
    heads = config.num_attention_heads + config.num_key_value_heads
    attention = 2 * E * D * heads
    if config.attention_bias:
        attention += (heads + config.num_key_value_heads) * D + E
    expert = 3 * E * config.moe_intermediate_size
    sparse = sum(uses_experts(config, i) for i in range(config.num_hidden_layers))
    active = config.num_hidden_layers * (attention + 2 * E + 2 * D) + E
    active += (config.num_hidden_layers - sparse) * 3 * E * config.intermediate_size
    active += sparse * (E * config.num_experts + config.num_experts_per_tok * expert)
    active += config.vocab_size * E * (2 - config.tie_word_embeddings)
    idle = sparse * (config.num_experts - config.num_experts_per_tok) * expert
    return active + idle, active


# %% exercise 6.4: a list of shapes
def count_parameters(config):
    E, D, X = config.hidden_size, config.head_dim, config.num_experts
    q, kv = config.num_attention_heads * D, config.num_key_value_heads * D
    always = [(config.vocab_size, E), (E,)]
    if not config.tie_word_embeddings:
        always.append((config.vocab_size, E))
    experts = []
    for i in range(config.num_hidden_layers):
        always += [(q, E), (kv, E), (kv, E), (E, q), (D,), (D,), (E,), (E,)]
        if config.attention_bias:
            always += [(q,), (kv,), (kv,), (E,)]
        if uses_experts(config, i):
            always.append((X, E))
            experts += 3 * [(config.moe_intermediate_size, E)]
        else:
            always += 3 * [(config.intermediate_size, E)]
    always, each = (sum(torch.Size(s).numel() for s in shapes) for shapes in (always, experts))
    return always + X * each, always + config.num_experts_per_tok * each


# %% exercise 6.4: which layers are sparse, worked out again; numbers as ints of a sum
def count_parameters(config: Qwen3Config) -> tuple[int, int]:
    def model(experts):
        size, total = config.hidden_size, 0
        for number in range(1, config.num_hidden_layers + 1):
            q = config.num_attention_heads * config.head_dim
            kv = config.num_key_value_heads * config.head_dim
            for rows in (q, kv, kv):
                total += rows * (size + int(config.attention_bias))
            total += size * (q + int(config.attention_bias))
            total += 2 * (size + config.head_dim)
            listed = number - 1 in config.mlp_only_layers
            if config.num_experts and not listed and number % config.decoder_sparse_step == 0:
                total += size * config.num_experts
                total += experts * 3 * size * config.moe_intermediate_size
            else:
                total += 3 * size * config.intermediate_size
        words = config.vocab_size * size
        return total + size + (words if config.tie_word_embeddings else 2 * words)

    return model(config.num_experts), model(config.num_experts_per_tok)


# %% exercise 6.5: with names for the normed
class WebLayer(Qwen3DecoderLayer):
    def forward(self, hidden_states, cos, sin, mask=None, cache=None):
        normed = self.input_layernorm(hidden_states)
        middle = hidden_states + self.self_attn(normed, cos, sin, mask, cache)
        normed = self.post_attention_layernorm(middle)
        return middle + self.mlp(normed), None
