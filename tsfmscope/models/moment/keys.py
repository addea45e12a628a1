"""Keys of a MOMENT checkpoint that both its reader and its network need."""

# Keys of config.json under the block `t5_config`.
T5_KEYS = (
    *("d_model", "d_ff", "d_kv", "num_heads", "num_layers", "dropout_rate", "feed_forward_proj", "initializer_factor"),
    *("layer_norm_epsilon", "relative_attention_max_distance", "relative_attention_num_buckets"),
)
# Tensors of released files that are left out: an embedding of words that nothing reads, and sine positions.
UNUSED = ("encoder.embed_tokens.weight", "patch_embedding.position_embedding.pe")
