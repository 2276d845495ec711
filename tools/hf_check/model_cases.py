"""Small models of every family: what their config.json says, and by what name the test knows them.

A width is a square, so that its root has no digits to lose, and no token is one of padding."""

SIZES = dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=96)
GPT_SIZES = dict(vocab_size=32, n_positions=96, n_embd=16, n_layer=2, n_head=4)
FALCON = dict(vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=96)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12)
LATENT = dict(n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=12, n_shared_experts=2, n_group=4,
              topk_group=2, first_k_dense_replace=1, kv_lora_rank=6, qk_nope_head_dim=4, qk_rope_head_dim=8,
              v_head_dim=5)
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 2.0, "beta_slow": 0.25,
        "mscale": 0.7, "mscale_all_dim": 0.9}
TOKENS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **more}}


def cases():
    """(name, config.json as a dict), each with the generation of keys that it is to be read in."""
    llama = dict(model_type="llama", **SIZES)
    heads8 = dict(head_dim=8)  # four pairs: enough for every ramp
    gemma = dict(SIZES, head_dim=8, num_attention_heads=4)
    found = [
        ("llama", dict(llama)),
        ("llama-biased", dict(llama, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, hidden_act="gelu")),
        ("llama-old-keys", dict(llama, rope_theta=500.0, rope_scaling={"type": "linear", "factor": 4.0})),
        ("llama-linear", dict(llama, **rope("linear", factor=2.5))),
        ("llama-dynamic", dict(llama, **heads8, **rope("dynamic", factor=2.0)) | {"max_position_embeddings": 5}),
        ("llama-yarn", dict(llama, **heads8, **rope("yarn", factor=4.0, original_max_position_embeddings=16,
                                                   beta_fast=2.0, beta_slow=0.25))),
        ("llama-longrope-short", dict(llama, **heads8, **rope("longrope", short_factor=[1.0, 1.1, 1.3, 1.7],
                                      long_factor=[1.0, 2.0, 4.0, 8.0], original_max_position_embeddings=80))),
        ("llama-longrope-long", dict(llama, **heads8, **rope("longrope", short_factor=[1.0, 1.1, 1.3, 1.7],
                                     long_factor=[1.0, 2.0, 4.0, 8.0], original_max_position_embeddings=4))),
        ("llama-llama3", dict(llama, **heads8, **rope("llama3", factor=8.0, low_freq_factor=0.1, high_freq_factor=0.9,
                                                     original_max_position_embeddings=16))),
        ("mistral", dict(model_type="mistral", **SIZES, sliding_window=3, head_dim=6)),
        ("qwen2", dict(model_type="qwen2", **SIZES, use_sliding_window=True, sliding_window=3, max_window_layers=1)),
        ("qwen3", dict(model_type="qwen3", **SIZES, head_dim=6, tie_word_embeddings=True)),
        ("phi3", dict(model_type="phi3", **SIZES, original_max_position_embeddings=4, sliding_window=5,
                      rope_theta=100.0, rope_scaling={"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]},
                      partial_rotary_factor=0.5)),
        ("gemma", dict(model_type="gemma", **gemma)),
        ("gemma2", dict(model_type="gemma2", **gemma, query_pre_attn_scalar=6, sliding_window=3,
                        attn_logit_softcapping=2.0, final_logit_softcapping=1.5)),
        ("gemma3", dict(model_type="gemma3_text", **gemma, query_pre_attn_scalar=6, sliding_window=3,
                        sliding_window_pattern=2, rope_theta=1000.0, rope_local_base_freq=50.0,
                        rope_scaling={"rope_type": "linear", "factor": 8.0})),
        ("olmo2", dict(model_type="olmo2", **SIZES)),
        ("gpt2", dict(model_type="gpt2", **GPT_SIZES, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0)),
        ("gpt-neox", dict(model_type="gpt_neox", **SIZES, rotary_pct=0.5, hidden_act="gelu")),
        ("gpt-neox-in-turn", dict(model_type="gpt_neox", **SIZES, rotary_pct=1.0, hidden_act="gelu_new",
                                  use_parallel_residual=False)),
        ("gptj", dict(model_type="gptj", **GPT_SIZES | {"n_head": 2}, rotary_dim=4)),
        ("opt", dict(model_type="opt", **SIZES, ffn_dim=24, dropout=0.0, word_embed_proj_dim=16)),
        ("phi", dict(model_type="phi", **SIZES)),
        ("phi-old-keys", dict(model_type="phi", **SIZES | {"num_key_value_heads": 4},
                              partial_rotary_factor=1.0, rope_theta=100.0, tie_word_embeddings=True)),
        ("bloom", dict(model_type="bloom", vocab_size=32, hidden_size=24, n_layer=2, n_head=6)),
        ("falcon", dict(model_type="falcon", **FALCON)),
        ("falcon-groups", dict(model_type="falcon", **FALCON, new_decoder_architecture=True, num_kv_heads=2, bias=True)),
        ("falcon-in-turn", dict(model_type="falcon", **FALCON, multi_query=False,
                                parallel_attn=False, ffn_hidden_size=24)),
        ("mixtral", dict(model_type="mixtral", **SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=3)),
        ("qwen2-moe", dict(model_type="qwen2_moe", **SIZES, **EXPERTS, shared_expert_intermediate_size=20,
                           use_sliding_window=True, sliding_window=3, mlp_only_layers=[0])),
        ("qwen3-moe", dict(model_type="qwen3_moe", **SIZES, **EXPERTS, head_dim=6, norm_topk_prob=True,
                           tie_word_embeddings=True)),
        ("olmoe", dict(model_type="olmoe", **SIZES, num_experts=4, num_experts_per_tok=2)),
        ("deepseek-v3", dict(model_type="deepseek_v3", **SIZES | {"num_key_value_heads": 4}, **LATENT, q_lora_rank=10,
                             rope_theta=100.0, rope_scaling=YARN)),
        ("deepseek-v3-plain", dict(model_type="deepseek_v3", **SIZES | {"num_key_value_heads": 4}, **LATENT,
                                   q_lora_rank=None, rope_interleave=False, norm_topk_prob=False)),
        ("gpt-oss", dict(model_type="gpt_oss", **SIZES, num_local_experts=4, num_experts_per_tok=2, head_dim=8,
                         sliding_window=3, swiglu_limit=0.5, swiglu_alpha=1.3,
                         rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "truncate": False,
                                          "original_max_position_embeddings": 16, "beta_fast": 2.0,
                                          "beta_slow": 0.25})),
        ("opt-behind", dict(model_type="opt", **SIZES, ffn_dim=24, dropout=0.0, word_embed_proj_dim=8,
                            do_layer_norm_before=False)),
    ]
    return [(name, {**config, **TOKENS}) for name, config in found] + row_cases()


def row_cases():
    """Models that see more than what stands before a token."""
    bert = dict(model_type="bert", vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                num_attention_heads=4, max_position_embeddings=16, hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0)
    labels = {"0": "bad", "1": "fair", "2": "good"}
    t5 = dict(model_type="t5", vocab_size=32, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=4,
              relative_attention_num_buckets=8, relative_attention_max_distance=6, dropout_rate=0.0,
              pad_token_id=0, decoder_start_token_id=0, eos_token_id=1)
    return [
        ("bert", dict(bert, pad_token_id=None)),
        ("bert-classifier", dict(bert, pad_token_id=0, architectures=["BertForSequenceClassification"],
                                 hidden_act="gelu_new", id2label=labels, label2id={n: int(i) for i, n in labels.items()})),
        ("t5", dict(t5)),
        ("vit", dict(model_type="vit", image_size=12, patch_size=4, num_channels=3, hidden_size=16, intermediate_size=24,
                     num_hidden_layers=2, num_attention_heads=4, id2label=labels,
                     label2id={n: int(i) for i, n in labels.items()}, image_mean=[0.5, 0.25, 0.75],
                     image_std=[0.5, 0.75, 0.25])),
        ("bart", dict(model_type="bart", vocab_size=32, max_position_embeddings=80, d_model=16, encoder_layers=2,
                      decoder_layers=1, encoder_ffn_dim=24, decoder_ffn_dim=20, encoder_attention_heads=4,
                      decoder_attention_heads=2, dropout=0.0, pad_token_id=0, bos_token_id=3,
                      eos_token_id=1, decoder_start_token_id=2, forced_eos_token_id=None)),
        ("t5-gated", dict(t5, feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_decoder_layers=1)),
    ]
