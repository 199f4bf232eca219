"""What the plan says of a language model's memory is what torch keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from trainables import llm_adapter
from trainables.llm_memory import memory_need


@pytest.mark.parametrize(
    "changes",
    [{}, {"checkpointing": True}, {"dropout": True, "rank": 16}, {"target": "attention"}, {"target": "mlp"}],
    ids=str,
)
def test_memory_is_what_torch_keeps_for_the_backward_pass(changes: dict[str, Any]) -> None:
    """In bfloat16 on the CPU. Weights are exact; activations within a tenth."""
    shape: dict[str, Any] = {
        "hidden_size": 128, "num_hidden_layers": 3, "intermediate_size": 352, "vocab_size": 300, "head_dim": 32,
        "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False,
    }  # fmt: skip
    options: dict[str, Any] = {"rank": 4, "samples": 2, "length": 128, **changes}
    need = memory_need(shape, **options)
    base = LlamaForCausalLM(LlamaConfig(**shape)).to(torch.bfloat16).requires_grad_(False)
    assert sum(parameter.numel() for parameter in base.parameters()) == need.parameters
    if options.get("checkpointing"):
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    modules = llm_adapter.layers_to_adapt(base, options.get("target", "all"))
    dropout = 0.1 if options.get("dropout") else 0.0
    model = get_peft_model(base, LoraConfig(r=options["rank"], target_modules=modules, lora_dropout=dropout)).train()
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert need.adapter == 16 * trained
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    held: dict[int, tuple[int, torch.Tensor]] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16):
        model(input_ids=torch.zeros(2, 128, dtype=torch.int64), use_cache=False)
    counted = sum(size for size, _ in held.values())
    if options.get("checkpointing"):  # and one layer's, when it is computed again
        counted += (memory_need(shape, **{**options, "checkpointing": False}).activations) // 3
    assert need.activations == pytest.approx(counted, rel=0.1)
