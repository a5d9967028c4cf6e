"""config.json of well-known encoders: all their fields, as they are on the hub."""

from typing import Any

BERT: dict[str, Any] = {
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 30522,
}

BERT_MULTILINGUAL: dict[str, Any] = BERT | {
    "directionality": "bidi",
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
    "vocab_size": 119547,
}

BERT_NER: dict[str, Any] = BERT | {
    "_num_labels": 9,
    "architectures": ["BertForTokenClassification"],
    "id2label": {"0": "O", "1": "B-MISC", "2": "I-MISC", "3": "B-PER", "4": "I-PER"},
    "label2id": {"O": 0, "B-MISC": 1, "I-MISC": 2, "B-PER": 3, "I-PER": 4},
    "output_past": True,
    "vocab_size": 28996,
}

CROSS_ENCODER: dict[str, Any] = BERT | {
    "architectures": ["BertForSequenceClassification"],
    "hidden_size": 384,
    "id2label": {"0": "LABEL_0"},
    "intermediate_size": 1536,
    "label2id": {"LABEL_0": 0},
    "num_hidden_layers": 6,
    "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity",
}

ROBERTA: dict[str, Any] = {
    "architectures": ["RobertaForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 514,
    "model_type": "roberta",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 1,
    "type_vocab_size": 1,
    "vocab_size": 50265,
}

ROBERTA_SQUAD: dict[str, Any] = ROBERTA | {
    "architectures": ["RobertaForQuestionAnswering"],
    "gradient_checkpointing": False,
    "language": "english",
    "name": "Roberta",
}

XLM_ROBERTA: dict[str, Any] = ROBERTA | {
    "architectures": ["XLMRobertaForMaskedLM"],
    "model_type": "xlm-roberta",
    "output_past": True,
    "position_embedding_type": "absolute",
    "transformers_version": "4.17.0.dev0",
    "use_cache": True,
    "vocab_size": 250002,
}

CAMEMBERT: dict[str, Any] = ROBERTA | {
    "architectures": ["CamembertForMaskedLM"],
    "bos_token_id": 5,
    "eos_token_id": 6,
    "model_type": "camembert",
    "output_past": True,
    "vocab_size": 32005,
}

MODERNBERT: dict[str, Any] = {
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 50281,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 50281,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 50282,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 1152,
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "pad_token_id": 50283,
    "position_embedding_type": "absolute",
    "reference_compile": True,
    "sep_token_id": 50282,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.47.0.dev0",
    "vocab_size": 50368,
}

VIT: dict[str, Any] = {
    "_name_or_path": "vit-base-patch16-224-in21k",
    "architectures": ["ViTForImageClassification"],
    "attention_probs_dropout_prob": 0.0,
    "encoder_stride": 16,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 768,
    "id2label": {"0": "tench", "1": "crane", "2": "shark", "3": "crane"},
    "image_size": 224,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "label2id": {"tench": 0, "crane": 3, "shark": 2},
    "layer_norm_eps": 1e-12,
    "model_type": "vit",
    "num_attention_heads": 12,
    "num_channels": 3,
    "num_hidden_layers": 12,
    "patch_size": 16,
    "qkv_bias": True,
    "transformers_version": "4.13.0.dev0",
}

ALL = {
    "bert-base-uncased": BERT,
    "bert-base-multilingual-cased": BERT_MULTILINGUAL,
    "bert-base-ner": BERT_NER,
    "ms-marco-minilm": CROSS_ENCODER,
    "roberta-base": ROBERTA,
    "roberta-base-squad2": ROBERTA_SQUAD,
    "xlm-roberta-base": XLM_ROBERTA,
    "camembert-base": CAMEMBERT,
    "modernbert-base": MODERNBERT,
    "vit-base-patch16-224": VIT,
}
