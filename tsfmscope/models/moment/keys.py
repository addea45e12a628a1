"""Keys of a MOMENT config that give its shape, and tensors of its files that nothing reads."""

REQUIRED = ("seq_len", "patch_len", "d_model", "d_ff", "d_kv", "num_heads", "num_layers")
# Values in the config.json of the releases (FLAN-T5's), under BLOCK.
T5_DEFAULTS = {
    "dropout_rate": 0.1,
    "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0,
    "layer_norm_epsilon": 1e-6,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
}
# Keys of the encoder.
T5_KEYS = (*REQUIRED[2:], *T5_DEFAULTS)
# Tensors of released files that are left out: an embedding of words that nothing reads, and sine positions.
UNUSED = ("encoder.embed_tokens.weight", "patch_embedding.position_embedding.pe")
