"""The networks that `make models` exports, by name.

What it is: the list that tests of whole models share.  What it is not: the exporter
(`benchmarks/models/export.py`).
"""

NETWORKS = (
    "resnet50",
    "mobilenetv2",
    "convnext_tiny",
    "vit_b16",
    "bert_base",
    "bert_base_dynamic",
    "minilm_l6",
    "gpt2_prefill",
    "gpt2_decode",
    "llama_decode",
    "whisper_tiny_encoder",
    "yolo_detector",
    "unet_diffusion",
    "mlp_b1",
    "mlp_b64",
)
