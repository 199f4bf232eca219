"""Dropout whose probability is an input of compiled graphs: other values compile nothing new."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig as BertNetworkConfig
from transformers import BertForSequenceClassification, DistilBertConfig, DistilBertForSequenceClassification, ViTConfig

from gaudi_tune.data.pretrained import RANDOM
from gaudi_tune.recipes.tensor_dropout import TensorDropout, dropout_as_tensors
from trainables.attention import choose_attention
from trainables.bert import BertConfig
from trainables.vit import ViTTrialConfig
from trainables.vit_network import build_vit

SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
TRIAL: dict[str, Any] = {"lr": 0.1, "batch_size": 4, "weight_decay": 0.0, "compile": True}


def bert(dropout: float) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    probabilities = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = BertForSequenceClassification(BertNetworkConfig(**SMALL, **probabilities, vocab_size=20))
    choose_attention(model, BertConfig(**TRIAL, epochs=1, dropout=dropout))
    padded = (torch.arange(12) < torch.tensor([12, 5, 7, 12]).unsqueeze(1)).long()
    return model, {"input_ids": torch.arange(48).reshape(4, 12) % 20, "attention_mask": padded}


def distilbert(dropout: float) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "vocab_size": 20}
    probabilities = {"dropout": dropout, "attention_dropout": dropout}
    model = DistilBertForSequenceClassification(DistilBertConfig(**sizes, **probabilities))
    choose_attention(model, BertConfig(**TRIAL, epochs=1, dropout=dropout))
    return model, bert(dropout)[1]


def vit(dropout: float) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    network = ViTConfig(**SMALL, image_size=8, patch_size=4, hidden_dropout_prob=dropout)
    model = build_vit(RANDOM, "", network, classes=2, zero_head=False)
    choose_attention(model.vit, ViTTrialConfig(**TRIAL, epochs=1, warmup=0.0, dropout=dropout))
    return model, {"images": torch.ones(4, 3, 8, 8)}


@pytest.mark.parametrize(("network", "layer"), [(bert, "bert.encoder.layer.0"), (vit, "vit.vit.layers.0")])
def test_other_probabilities_compile_nothing_new(network: Any, layer: str) -> None:
    """A layer has all kinds of dropout of its network, and is traced faster."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    for dropout in (0.1, 0.25, 0.3):
        model, _ = network(dropout)
        run = torch.compile(model.train().get_submodule(layer), backend=backend, dynamic=False)
        values = torch.randn(2, 5, 16)
        outputs = [run(values) for _ in range(2)]
        assert not torch.equal(*outputs), "nothing was dropped"
        assert len(graphs) == 1


def test_a_graph_gives_what_its_probability_says() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    for p in (0.1, 0.25):
        network = nn.Sequential(nn.Dropout(p), nn.Dropout(0.0), nn.Dropout(1.0), nn.AlphaDropout(0.5))
        before = copy.deepcopy(network)
        dropout_as_tensors(network)
        assert [type(module) for module in network] == [TensorDropout, nn.Dropout, nn.Dropout, nn.AlphaDropout]
        assert network.state_dict() == before.state_dict() == {}
        run = torch.compile(network[0], backend="eager", dynamic=False)
        values = torch.full((200, 500), 2.0, requires_grad=True)
        dropped = run(values)
        assert float((dropped == 0).float().mean()) == pytest.approx(p, abs=0.005)
        assert dropped.unique().tolist() == pytest.approx([0.0, 2 / (1 - p)])
        (slope,) = torch.autograd.grad(dropped.sum(), values)
        assert torch.allclose(slope, dropped.detach() / 2)
        assert run(values.bfloat16()).dtype == torch.bfloat16
        assert torch.equal(network.eval()[0](values), values)


@pytest.mark.parametrize("network", [bert, distilbert, vit])
def test_without_dropping_a_network_computes_what_it_did(network: Any) -> None:
    """The attention with a tensor is torch's own, and evaluation drops nothing."""
    torch.manual_seed(0)
    model, inputs = network(0.1)
    expected = model.eval()(**inputs)
    model.train()
    for module in model.modules():
        if isinstance(module, TensorDropout):
            module.p.zero_()
    found = model(**inputs)
    before, after = (getattr(outputs, "logits", outputs) for outputs in (expected, found))
    assert torch.allclose(before, after, atol=1e-6)
