"""Attention by habana's kernel is torch's own, on the stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from gaudi_tune.devices.find import DEVICE_TYPES
from tests.helpers.stand_in_hpu import forked_output_of
from trainables.attention import choose_attention
from trainables.bert import BertConfig

BERT = {"lr": 0.1, "batch_size": 8, "weight_decay": 0.0, "dropout": 0.0}

COMPARED = """
import copy, sys, torch
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification
from trainables.attention import choose_attention
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from trainables.vit import ViTTrialConfig
from habana_frameworks.torch import _recipes
small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
small |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
torch.manual_seed(0)
bert = BertForSequenceClassification(BertConfig(**small, vocab_size=20, max_position_embeddings=12))
vit = ViTForImageClassification(ViTConfig(**small, image_size=8, patch_size=4))
words = torch.randint(20, (3, 12))
padded = (torch.arange(12) < torch.tensor([12, 5, 7]).unsqueeze(1)).long()
inputs = {bert: {"input_ids": words, "attention_mask": padded}, vit: {"pixel_values": torch.randn(2, 3, 8, 8)}}
device, calls = DEVICE_TYPES["hpu"], []
kernel = type(device).attention(device)
type(device).attention = lambda self: lambda *given: (calls.append(len(given)), kernel(*given))[1]
def trained(model, wanted, autocast, compiled):
    model = copy.deepcopy(model).to(worker_device())
    config = ViTTrialConfig(steps=1, eval_every=1, lr=1, batch_size=8, weight_decay=0, warmup=0, fused_attention=wanted)
    choose_attention(model, config)
    run = device.compile(model) if compiled else model
    with device.autocast(autocast):
        logits = run(**{name: value.to(worker_device()) for name, value in inputs[key].items()}).logits.float()
    logits.square().sum().backward()
    return [logits.detach(), *(weight.grad for weight in model.parameters() if weight.grad is not None)]
for key in (bert, vit):
    for autocast, tolerance in (("off", 1e-5), ("bf16", 0.05)):
        before = len(calls)
        theirs, ours = trained(key, False, autocast, False), trained(key, "auto", autocast, False)
        assert len(calls) == before + 1, calls
        assert all(torch.allclose(*pair, rtol=tolerance, atol=tolerance) for pair in zip(theirs, ours, strict=True))
    print(type(key).__name__)
pairs = zip(trained(vit, True, "off", False), trained(vit, True, "off", True), strict=True)
print(all(torch.allclose(*pair, rtol=1e-5, atol=1e-5) for pair in pairs))
print(len(_recipes._loaded))
kernels, compiled = len(calls), []
for dropout in (0.1, 0.2):
    again = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    dropping = BertForSequenceClassification(BertConfig(**{**bert.config.to_dict(), **again})).train()
    choose_attention(dropping, ViTTrialConfig(steps=1, eval_every=1, lr=1, batch_size=8, weight_decay=0, warmup=0))
    layer = device.compile(dropping.to(worker_device()).bert.encoder.layer[0])
    layer(torch.randn(2, 5, 16).to(worker_device())).sum().backward()
    compiled.append(len(_recipes._loaded))
print(compiled[1] - compiled[0], len(calls) - kernels)
choose_attention(bert, ViTTrialConfig(steps=1, eval_every=1, lr=1, batch_size=8, weight_decay=0, warmup=0))
bert.config.save_pretrained(sys.argv[0] + "saved")
"""


@pytest.mark.processes
def test_the_kernel_computes_what_torch_does_forwards_and_backwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = forked_output_of(COMPARED, tmp_path, HABANA_VISIBLE_MODULES="6", HLS_MODULE_ID="6")
    networks = ["BertForSequenceClassification", "ViTForImageClassification"]
    assert printed.splitlines() == [*networks, "True", "2", "0 0"]  # a graph forwards, and one backwards
    assert "gaudi-tune" not in (tmp_path / "-csaved" / "config.json").read_text()  # another device may load it
    assert json.loads((tmp_path / "-csaved" / "config.json").read_text())["model_type"] == "bert"


def test_a_device_without_a_kernel_is_an_error_where_it_is_insisted_on() -> None:
    config = BertConfig.from_dict({**BERT, "epochs": 1, "fused_attention": True})
    config.for_device(DEVICE_TYPES["hpu"])
    with pytest.raises(ValueError, match="--set fused_attention=true: an HPU has this kernel, cpu does not"):
        config.for_device(DEVICE_TYPES["cpu"])
    BertConfig.from_dict({**BERT, "epochs": 1}).for_device(DEVICE_TYPES["cpu"])


def test_attention_that_no_kernel_computes_is_an_error() -> None:
    """Gemma 2 bounds its scores, which neither habana's kernel nor torch's does."""
    small: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8}
    model = Gemma2ForCausalLM(Gemma2Config(**small, num_key_value_heads=2, intermediate_size=16, vocab_size=20))
    choose_attention(model, BertConfig.from_dict({**BERT, "epochs": 1, "compile": True}))
    with pytest.raises(ValueError, match=r"attention has softcap, .* --set compile=false fused_attention=false"):
        model(input_ids=torch.ones(1, 4, dtype=torch.int64))
