"""Mechanisms by the config fields that name them, for architectures without a table of their own. Imports no torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from clearhead.checkpoints.weights.documents import shown

Document = Mapping[str, Any]
LONGEST = 40
"""Characters of a name or value in a message that lists several."""


@dataclass(frozen=True)
class Mechanism:
    """A part of a network, and the config fields that each show that a network has it."""

    name: str
    fields: tuple[str, ...]
    words: tuple[str, ...] = ()
    """If given, the field's text, or an item of its list, must contain one of these. Else every set value counts."""
    above: float = 0
    """A number says so only above this one."""


@dataclass(frozen=True)
class Sign:
    """A field of a config that says which mechanism the network has."""

    mechanism: str
    field: str
    value: JsonValue

    def __str__(self) -> str:
        return f"{self.mechanism} ({cut(self.field)}={_shortest(self.value)})"


MECHANISMS: tuple[Mechanism, ...] = (
    Mechanism(
        "mixture of experts",
        (
            *("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok"),
            *("moe_intermediate_size", "moe_topk", "num_moe_layers", "moe_k", "num_selected_experts", "top_k_experts"),
        ),
        above=1,
    ),
    Mechanism("latent attention", ("kv_lora_rank", "qk_rope_head_dim", "q_lora_rank")),
    Mechanism(
        "state space layers",
        (
            *("ssm_state_size", "state_size", "mamba_d_state", "mamba_d_conv", "mamba_expand", "ssm_cfg", "d_state"),
            *("mamba_n_heads", "mamba_num_heads", "time_step_rank", "mamba_headdim"),
        ),
    ),
    Mechanism(
        "linear attention or recurrent layers",
        (
            *("linear_num_key_heads", "linear_conv_kernel_dim", "lru_width", "attention_hidden_size", "rescale_every"),
            *("linear_attn_config", "mlstm_round_up_to_multiple_of", "gated_delta", "num_linear_heads"),
        ),
    ),
    Mechanism(
        "linear attention or recurrent layers",
        (
            "layer_types",
            "layers_block_type",
            "block_types",
            "_block_types",
            "attn_type_list",
            "hybrid_override_pattern",
        ),
        words=("linear", "mamba", "recurrent", "hybrid", "lightning", "gated_delta"),
    ),
    Mechanism("convolutions between tokens", ("conv_L_cache", "conv_kernel_size", "conv_depthwise_kernel_size")),
    Mechanism("convolutions between tokens", ("layer_types",), words=("conv",)),
    Mechanism(
        "sparse attention",
        (
            *("index_topk", "index_n_heads", "attention_window", "num_random_blocks", "num_hashes", "attn_layers"),
            *("num_landmarks", "hash_code_len", "approx_mode", "local_attention_context", "lsh_attn_chunk_length"),
        ),
    ),
    Mechanism(
        "sparse attention",
        ("layer_types", "attention_layers", "attn_types"),
        words=("chunked", "compressed", "sparse", "indexed"),
    ),
    Mechanism(
        "sparse attention", ("attention_chunk_size", "global_attn_every_n_layers_block", "encoder_attention_type")
    ),
    Mechanism("another activation", ("hidden_act", "activation_function"), words=("xielu",)),
    Mechanism("disentangled attention", ("relative_attention", "pos_att_type", "position_biased_input")),
    Mechanism("differential attention", ("lambda_std_dev",)),
    Mechanism("residual streams that are mixed (hyper-connections)", ("hc_mult", "num_residual_streams")),
    Mechanism("keys and values that layers share", ("num_kv_shared_layers", "kv_sharing_modes", "share_kv_layers")),
    Mechanism("an embedding for each layer", ("hidden_size_per_layer_input", "vocab_size_per_layer_input")),
    Mechanism("keys and values that are clipped", ("clip_qkv",)),
    Mechanism("attention in two streams with a memory", ("mem_len", "two_stream", "reuse_len", "clamp_len")),
    Mechanism("prediction of several tokens at once", ("ngram", "n_predict", "num_future_tokens")),
    Mechanism("pooling between layers", ("block_sizes", "pooling_type", "truncate_seq", "downsampling_rate")),
    Mechanism("convolution beside attention", ("head_ratio", "conv_glu", "depthwise_conv")),
    Mechanism("a Fourier transform in place of attention", ("use_tpu_fourier_optimizations",)),
    Mechanism("patches of bytes", ("patcher_config", "patcher_args", "encoder_hash_byte_group_size")),
    Mechanism("hashed characters", ("num_hash_functions", "num_hash_buckets")),
    Mechanism("adapters for each language", ("adapter_reduction_factor", "languages")),
    Mechanism("embeddings of languages", ("use_lang_emb", "n_langs", "lang2id")),
    Mechanism("embeddings of entities", ("entity_vocab_size", "entity_emb_size")),
    Mechanism("embeddings of shapes and sounds of characters", ("pronunciation_vocab_size", "shape_vocab_size")),
    Mechanism("embeddings of table cells", ("type_vocab_sizes", "max_num_rows")),
    Mechanism(
        "positions on a page",
        ("max_2d_position_embeddings", "coordinate_size", "max_xpath_tag_unit_embeddings", "max_bbox_size"),
    ),
    Mechanism("an array of latents that attends to the input", ("num_latents", "d_latents", "resampler_n_latents")),
    Mechanism("retrieval from an index of passages", ("retrieval_vector_size", "n_docs", "retriever_proj_size")),
    Mechanism("layers that are run several times with halting", ("act_threshold", "halt_max_steps", "H_cycles")),
    Mechanism("diffusion of text", ("canvas_length", "block_length", "num_diffusion_steps", "diffusion_loss_weight")),
    Mechanism("states, actions and returns", ("state_dim", "act_dim", "action_dim", "max_action_dim", "num_actions")),
    Mechanism("folding of proteins", ("esmfold_config", "folding_trunk", "c_s", "msa_depth")),
    Mechanism(
        "a convolutional stem for sound",
        (
            "num_mel_bins",
            "feat_extract_norm",
            "num_feat_extract_layers",
            "conv_dim",
            "input_feat_per_channel",
            "n_mels",
        ),
    ),
    Mechanism(
        "synthesis of sound",
        (
            *("upsample_rates", "upsampling_ratios", "codebook_size", "num_codebooks", "flow_size", "n_codes_total"),
            *("duration_predictor_kernel_size", "speaker_embedding_size", "codec_config", "model_in_channels"),
        ),
    ),
    Mechanism(
        "forecasts of time series",
        ("prediction_length", "lags_sequence", "patch_length", "horizon_length"),
    ),
    Mechanism("video", ("num_frames", "tubelet_size", "frames_per_clip", "mit_hidden_size")),
    Mechanism("windows of pictures", ("window_size", "window_block_indices", "global_attn_indexes", "kernel_size")),
    Mechanism(
        "stages of shrinking resolution",
        (
            *(
                "depths",
                "num_encoder_blocks",
                "stage_num_blocks",
                "stage_mid_channels",
                "expand_ratios",
                "depth_divisor",
            ),
            *("depth_multiplier", "neck_hidden_sizes", "downsampling_ratio", "layers_to_use"),
        ),
    ),
    Mechanism(
        "detection, segmentation or depth",
        (
            *("num_queries", "bbox_cost", "decoder_n_points", "num_detection_tokens", "num_mask_tokens", "max_depth"),
            *("mask_decoder_config", "reassemble_factors", "mask_feature_size", "num_object_queries", "num_keypoints"),
        ),
    ),
    Mechanism("a backbone of another network", ("backbone_config", "backbone", "timm_default", "architecture")),
    Mechanism("reconstruction of pictures", ("upscale", "decoder_num_hidden_layers", "num_upsample", "upscale_factor")),
    Mechanism(
        "matching of points", ("keypoint_detector_config", "descriptor_decoder_dim", "keypoint_decoder_hidden_size")
    ),
    Mechanism("branches with a scale for each channel", ("layerscale_value", "layer_scale_init_value")),
    Mechanism("registers", ("num_register_tokens", "n_cls_tokens")),
    Mechanism("pictures as tokens", ("vq_config", "image_token_id", "image_token_index", "vision_token_id")),
    Mechanism("vectors of pictures beside words", ("visual_embedding_dim", "visual_feat_dim", "image_embedding_size")),
    Mechanism(
        "a connection between pictures and text", ("mm_hidden_size", "mm_vision_tower", "vision_tower", "visual")
    ),
    Mechanism("rotary positions in two or three dimensions", ("mrope_section", "spatial_merge_size")),
    Mechanism(
        "several networks in one",
        (
            *("vision_config", "audio_config", "video_config", "speech_config", "image_model_config", "vlm_config"),
            *("encoder_config", "decoder_config", "encoder", "decoder", "text_config", "thinker_config"),
        ),
    ),
)
"""If a network has several, the first are the most informative."""


def signs(document: Document) -> list[Sign]:
    """Each mechanism that the fields of a config name, once, with the field that says so."""
    found: dict[str, Sign] = {}
    for mechanism in MECHANISMS:
        for field in mechanism.fields:
            if mechanism.name not in found and _says(document.get(field), mechanism):
                found[mechanism.name] = Sign(mechanism.name, field, document[field])
    return list(found.values())


def fields_of(name: str) -> frozenset[str]:
    """The fields that name this mechanism if they are set to any value."""
    return frozenset(field for one in MECHANISMS if one.name == name and not one.words for field in one.fields)


def parts(document: Document) -> Iterator[tuple[str, Document]]:
    """The configs of the networks within a network, by field."""
    for name, value in document.items():
        if isinstance(value, dict) and isinstance(value.get("model_type"), str) and value["model_type"]:
            yield name, value


def _says(value: object, mechanism: Mechanism) -> bool:
    if mechanism.words:
        texts = value if isinstance(value, list) else [value]
        return any(isinstance(text, str) and word in text for text in texts[:256] for word in mechanism.words)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value > mechanism.above
    return bool(value)


def _shortest(value: JsonValue) -> str:
    """A value for a message: tables and long lists only by their size."""
    if isinstance(value, Mapping):
        return "{…}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        kinds = list(dict.fromkeys(map(str, value[:256])))
        return cut(kinds[0]) if len(kinds) == 1 else f"{len(value)} values"
    return cut(repr(value))


def cut(text: str) -> str:
    """A name or value of a config for a message that lists several."""
    plain = shown(text)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"
